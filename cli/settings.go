package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"kudos/config"
)

// settings are the flags that set the configuration, on every command that has one.
type settings struct {
	cmd   *cobra.Command
	file  string
	set   []string
	short []shortFlag
}

// shortFlag is a flag of its own for one setting.
type shortFlag struct {
	name, key, usage string
	value            *string
}

// The short ways that commands offer, each where it means something.
func brokersFlag() shortFlag {
	return shortFlag{name: "brokers", key: "kafka.brokers", usage: "Kafka's addresses, host:port with commas between"}
}

func mysqlFlag() shortFlag {
	return shortFlag{name: "mysql-dsn", key: "mysql.dsn", usage: "database, user:password@tcp(host:3306)/database"}
}

func addSettings(cmd *cobra.Command, short ...shortFlag) *settings {
	s := &settings{cmd: cmd, short: short}
	flags := cmd.Flags()
	flags.StringVar(&s.file, "config", "", "YAML file of settings")
	flags.StringArrayVar(&s.set, "set", nil, `any setting, as key=value; repeatable ("kudos config" lists the keys)`)
	for i, f := range short {
		s.short[i].value = flags.String(f.name, "", fmt.Sprintf("%s (%s)", f.usage, f.key))
	}
	return s
}

// load returns the configuration. All that is wrong with it is a usageError.
func (s *settings) load() (*config.Loaded, error) {
	src := config.Sources{File: s.file, Flags: map[string]config.Flag{}}
	err := s.collect(src.Flags)
	if err != nil {
		return nil, usageError{err}
	}
	loaded, err := config.Load(src)
	if err != nil {
		return nil, usageError{fmt.Errorf("configuration:\n%w", err)}
	}
	return loaded, nil
}

// collect brings all flags under their keys. None may be given twice: which would
// hold is not plain to see.
func (s *settings) collect(into map[string]config.Flag) error {
	var errs []error
	add := func(key string, flag config.Flag) {
		if other, twice := into[key]; twice {
			errs = append(errs, fmt.Errorf("%s is given twice, by %s and by %s", key, other.Name, flag.Name))
		}
		into[key] = flag
	}
	for _, f := range s.short {
		if s.cmd.Flags().Changed(f.name) {
			add(f.key, config.Flag{Name: "--" + f.name, Value: *f.value})
		}
	}
	for _, arg := range s.set {
		key, flag, err := config.ParseSet(arg)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		add(key, flag)
	}
	return errors.Join(errs...)
}

// logger makes the logger of a role.
func (a *app) logger(cfg *config.Loaded) *slog.Logger {
	return cfg.Log.New(a.stderr, isTerminal(a.stderr))
}

// quietLogger is for a command that has its own words for what it does: unless told
// otherwise it logs from warnings on.
func quietLogger(cfg *config.Loaded, w io.Writer) *slog.Logger {
	log := cfg.Log
	if cfg.Origin("log.level").Kind == "default" {
		log.Level = "warn"
	}
	return log.New(w, isTerminal(w))
}
