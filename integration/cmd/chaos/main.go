// Command chaos (`make chaos`) runs kudos on real servers, injects faults, and compares counts and log after every
// episode. Its last line is `faults N events N differences N`. It exits with 1 after differences or a failed run.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"kudos/integration/chaos"
	"kudos/integration/stack"
)

type settings struct {
	options              chaos.Options
	kinds, report, table string
	keep                 bool
}

func main() {
	s := settings{options: chaos.DefaultOptions()}
	o := &s.options
	flag.IntVar(&o.Faults, "faults", o.Faults, "`number` of faults")
	flag.DurationVar(&o.For, "for", 0, "end after this `time` even if there were fewer faults (0: no limit)")
	flag.Uint64Var(&o.Seed, "seed", o.Seed, "decides which faults are injected, and where")
	flag.StringVar(&s.kinds, "kinds", "",
		"comma-separated `kinds` of faults to inject (default: all): "+strings.Join(chaos.Kinds(), ", "))
	flag.IntVar(&o.FaultsPerEpisode, "per-episode", o.FaultsPerEpisode, "faults between checks")
	flag.IntVar(&o.Rate, "rate", o.Rate, "events per second")
	flag.DurationVar(&o.DrainTimeout, "drain-timeout", o.DrainTimeout, "how long the lag may take to return to 0")
	flag.StringVar(&o.Program, "program", "", "`path` of the kudos binary (default: build it)")
	flag.StringVar(&o.Previous, "previous", "", "`path` of another version, which rolling upgrades alternate with")
	flag.StringVar(&o.Build, "build", "",
		"`name` of the sources: the report adds up with earlier runs of the same build, which -report has")
	flag.StringVar(&o.Dir, "dir", "",
		"`directory` for data and logs, which must exist (default: a new one, removed after a run without differences)")
	flag.StringVar(&s.report, "report", "", "write the report as JSON to this `file`, after each episode")
	flag.StringVar(&s.table, "table", "",
		"write the report as Markdown tables to this `file`, after each episode, between its lines "+tableBegin+" and "+
			tableEnd)
	flag.BoolVar(&s.keep, "keep", false, "always keep data and logs")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "chaos: unexpected argument %q: only flags are accepted, see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o.Enough = onSignals(cancel)
	if err := s.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
		os.Exit(1)
	}
}

// onSignals ends the run, with a complete report, after the current episode on the first signal, at once on the second.
func onSignals(cancel func()) (enough <-chan struct{}) {
	signals, first := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // runs until the process ends
		<-signals
		fmt.Fprintln(os.Stderr, "chaos: ending after this episode; press Ctrl-C again to end immediately")
		close(first)
		<-signals
		cancel()
	}()
	return first
}

func (s *settings) run(ctx context.Context) (err error) {
	o := &s.options
	o.Out = os.Stdout
	if s.kinds != "" {
		o.Kinds = strings.Split(s.kinds, ",")
	}
	temporary := o.Dir == ""
	if temporary {
		if o.Dir, err = os.MkdirTemp("", "kudos-chaos-"); err != nil {
			return err
		}
		if err := os.Chmod(o.Dir, 0o755); err != nil { // the database's account must be able to enter it
			return err
		}
	}
	defer func() {
		if temporary && err == nil && !s.keep {
			err = os.RemoveAll(o.Dir)
			return
		}
		fmt.Fprintf(os.Stderr, "data and logs are in %s; the timeline is in %s\n", o.Dir,
			filepath.Join(o.Dir, "chaos.log"))
	}()
	log, err := os.Create(filepath.Join(o.Dir, "chaos.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	if o.Program == "" {
		if o.Program, err = stack.BuildKudos(ctx, o.Dir, stack.AsShipped()); err != nil {
			return err
		}
	}
	if text, err := os.ReadFile(s.report); err == nil {
		if err := json.Unmarshal(text, &o.Earlier); err != nil {
			return fmt.Errorf("%s is not a report; delete it: %w", s.report, err)
		}
	}
	o.Progress = s.write
	report, err := chaos.Run(ctx, *o)
	if report == nil {
		return err
	}
	return errors.Join(tell(report), err)
}

func tell(r *chaos.Report) error {
	fmt.Println()
	if err := r.WriteTable(os.Stdout); err != nil {
		return err
	}
	fmt.Println()
	fmt.Println(r.Line())
	if r.Differences > 0 { // in any of the runs
		return errors.New("differences were found")
	}
	return nil
}

func (s *settings) write(r *chaos.Report) error {
	if s.report != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err == nil {
			err = replace(s.report, append(text, '\n'))
		}
		if err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
	}
	if s.table != "" {
		if err := writeTable(s.table, r); err != nil {
			return fmt.Errorf("writing the table: %w", err)
		}
	}
	return nil
}

// The table is written between these lines of a file; the rest is unchanged. Missing lines are appended.
const (
	tableBegin = "<!-- chaos: written by make chaos -->"
	tableEnd   = "<!-- end of chaos -->"
)

func writeTable(path string, r *chaos.Report) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	before, rest, found := strings.Cut(string(text), tableBegin)
	if !found && before != "" {
		before = strings.TrimRight(before, "\n") + "\n\n"
	}
	_, after, ended := strings.Cut(rest, tableEnd)
	if found && !ended {
		return fmt.Errorf("%s has the line %s, but not %s after it", path, tableBegin, tableEnd)
	}
	if !found {
		after = "\n"
	}
	var b strings.Builder
	b.WriteString(before + tableBegin + "\n\n")
	if err := r.WriteTable(&b); err != nil {
		return err
	}
	b.WriteString("\n" + tableEnd + after)
	return replace(path, []byte(b.String()))
}

func replace(path string, text []byte) error {
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
