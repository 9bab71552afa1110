package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"kudos/config"
	"kudos/ops/progress"
)

// settings are the flags that set the configuration, on every command that has one.
type settings struct {
	cmd   *cobra.Command
	file  string
	set   []string
	short []shortFlag
	flags map[string]config.Flag // what all of them set, once run
}

// shortFlag is a flag of its own for one setting.
type shortFlag struct{ name, key, usage string }

// The short ways that commands offer, each where it means something.
var (
	brokersFlag = shortFlag{"brokers", "kafka.brokers", "Kafka's addresses, host:port with commas between"}
	mysqlFlag   = shortFlag{"mysql-dsn", "mysql.dsn", "database, user:password@tcp(host:3306)/database"}
)

// addSettings adds them to a command, which takes no arguments unless it says which.
func addSettings(cmd *cobra.Command, short ...shortFlag) *settings {
	s := &settings{cmd: cmd, short: short}
	flags := cmd.Flags()
	flags.StringVar(&s.file, "config", "", "YAML file of settings")
	flags.StringArrayVar(&s.set, "set", nil, `any setting, as key=value; repeatable ("kudos config" lists the keys)`)
	for _, f := range short {
		flags.String(f.name, "", fmt.Sprintf("%s (%s)", f.usage, f.key))
	}
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	return s
}

// run completes the command, which does this with its configuration. What is wrong with that is a usageError.
func (s *settings) run(do func(ctx context.Context, cfg *config.Loaded, args []string) error) *cobra.Command {
	s.cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := s.collect(); err != nil {
			return usageError{err}
		}
		cfg, err := config.Load(config.Sources{File: s.file, Flags: s.flags})
		if err != nil {
			return usageError{fmt.Errorf("configuration:\n%w", err)}
		}
		return do(cmd.Context(), cfg, args)
	}
	return s.cmd
}

// collect brings all flags under their keys. None may be given twice: which one holds would be unclear.
func (s *settings) collect() error {
	s.flags = map[string]config.Flag{}
	var errs []error
	add := func(key string, flag config.Flag) {
		if other, twice := s.flags[key]; twice {
			errs = append(errs, fmt.Errorf("%s is given twice, by %s and by %s", key, other.Name, flag.Name))
		}
		s.flags[key] = flag
	}
	for _, f := range s.short {
		if flag := s.cmd.Flag(f.name); flag.Changed {
			add(f.key, config.Flag{Name: "--" + f.name, Value: flag.Value.String()})
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

// quietLogger is for a command that says itself what it does: it logs warnings, unless log.level is set.
func quietLogger(cfg *config.Loaded, w io.Writer) *slog.Logger {
	log := cfg.Log
	if cfg.Origin("log.level").Kind == "default" {
		log.Level = "warn"
	}
	return log.New(w, isTerminal(w))
}

// output is the value of --output: text for a person, json for a script.
type output string

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "format" }

func (o *output) Set(s string) error {
	if s != "text" && s != "json" {
		return fmt.Errorf("%q is neither text nor json", s)
	}
	*o = output(s)
	return nil
}

func addOutput(cmd *cobra.Command) *output {
	o := output("text")
	cmd.Flags().Var(&o, "output", "text for a person, json for a script")
	return &o
}

// print writes what a command found or did.
func (o *output) print(w io.Writer, value any, text string) error {
	if *o == "json" {
		return json.NewEncoder(w).Encode(value)
	}
	_, err := io.WriteString(w, text)
	return err
}

// aligned has the columns of rows, which tabs separate, below each other.
func aligned(rows []string) string {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, row) // into memory: nothing fails
	}
	_ = t.Flush()
	return text.String()
}

// progress shows how far a command's work has come, in addition to what it prints.
func (a *app) progress(command string) progress.Printer {
	return progress.Printer{Name: command, Out: a.stderr, Terminal: isTerminal(a.stderr)}
}

// took is a duration as text shows it.
func took(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second)).Round(10 * time.Millisecond)
}

// isTerminal says whether a person is at the end of a stream.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
