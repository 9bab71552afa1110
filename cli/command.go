package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"golang.org/x/text/language"

	"kudos/config"
	"kudos/ops/progress"
	"kudos/ranker"
	"kudos/schema"
)

// settings are the flags that set the configuration, shared by every command that loads it.
type settings struct {
	cmd   *cobra.Command
	file  string
	set   []string
	short []shortFlag
	flags map[string]config.Flag // all settings given as flags, by key; set by run
}

// shortFlag is a dedicated flag for one setting.
type shortFlag struct{ name, key, usage string }

// The dedicated flags; a command offers those it has a use for.
var (
	brokersFlag = shortFlag{"brokers", "kafka.brokers", "Kafka brokers, comma-separated host:port"}
	mysqlFlag   = shortFlag{"mysql-dsn", "mysql.dsn", "database as user:password@tcp(host:3306)/database"}
)

// addSettings adds the settings flags to cmd. Unless cmd.Args is set, the command takes no arguments.
func addSettings(cmd *cobra.Command, short ...shortFlag) *settings {
	s := &settings{cmd: cmd, short: short}
	flags := cmd.Flags()
	flags.StringVar(&s.file, "config", "", "YAML file with settings")
	flags.StringArrayVar(&s.set, "set", nil, `any setting, as key=value; repeatable ("kudos config" lists the keys)`)
	complete(cmd, "set", cobra.ShellCompDirectiveNoSpace, func() []string {
		return strings.Fields(strings.Join(config.Keys(), "= ") + "=")
	})
	for _, f := range short {
		flags.String(f.name, "", fmt.Sprintf("%s (%s)", f.usage, f.key))
	}
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	return s
}

// run makes do the action of the command. An error in the configuration is a usageError.
func (s *settings) run(do func(ctx context.Context, cfg *config.Loaded, args []string) error) *cobra.Command {
	s.cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := s.load()
		if err != nil {
			return usageError{err}
		}
		return do(cmd.Context(), cfg, args)
	}
	return s.cmd
}

func (s *settings) load() (*config.Loaded, error) {
	if err := s.collect(); err != nil {
		return nil, err
	}
	cfg, err := config.Load(config.Sources{File: s.file, Flags: s.flags})
	if err != nil {
		return nil, fmt.Errorf("configuration:\n%w", err)
	}
	return cfg, nil
}

// collect gathers all flags by key. A key given twice is an error: it is unclear which value applies.
func (s *settings) collect() error {
	s.flags = map[string]config.Flag{}
	var errs []error
	add := func(key string, flag config.Flag) {
		if other, twice := s.flags[key]; twice {
			errs = append(errs, fmt.Errorf("%s is set twice, by %s and by %s", key, other.Name, flag.Name))
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

func (a *app) logger(cfg *config.Loaded) *slog.Logger {
	return cfg.Log.New(a.stderr, isTerminal(a.stderr))
}

// quietLogger returns the logger of a command that prints its own progress: it logs warnings, unless log.level is set.
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
	cmd.Flags().Var(&o, "output", "text, or json for scripts")
	complete(cmd, "output", 0, func() []string { return []string{"text", "json"} })
	return &o
}

func (o *output) print(w io.Writer, value any, text string) error {
	if *o == "json" {
		return json.NewEncoder(w).Encode(value)
	}
	_, err := io.WriteString(w, text)
	return err
}

func aligned(rows []string) string {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, row) // to memory: cannot fail
	}
	_ = t.Flush()
	return text.String()
}

func (a *app) progress(command string) progress.Printer {
	return progress.Printer{Name: command, Out: a.stderr, Terminal: isTerminal(a.stderr)}
}

func took(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second)).Round(10 * time.Millisecond)
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// complete sets the values that the shell completes for a flag, and more than cobra's NoFileComp.
func complete(cmd *cobra.Command, flag string, more cobra.ShellCompDirective, values func() []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, // fails if there is no such flag, or twice
		func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return values(), more | cobra.ShellCompDirectiveNoFileComp
		})
}

// ranker returns the ranker's settings in the command line so far, or its defaults if those are not valid yet.
func (s *settings) ranker() ranker.Options {
	s.set = slices.Compact(slices.Sorted(slices.Values(s.set))) // cobra has parsed the flags twice
	if cfg, err := s.load(); err == nil {
		return cfg.Ranker
	}
	return ranker.DefaultOptions()
}

func (s *settings) windows() []string {
	return append(strings.Split(windowNames(s.ranker().Windows), ", "), schema.LeaderboardDay, schema.LeaderboardAll)
}

// regions returns those that have rankings; if any may have one, the countries.
func (s *settings) regions() []string {
	only := s.ranker().Regions
	regions := append([]string{schema.GlobalName}, only...)
	for i := 0; len(only) == 0 && i < 26*26; i++ {
		code := string([]byte{'A' + byte(i/26), 'A' + byte(i%26)})
		if r, err := language.ParseRegion(code); err == nil && r.IsCountry() && r.Canonicalize().String() == code {
			regions = append(regions, code)
		}
	}
	return regions
}
