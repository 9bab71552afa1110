// Command chaos runs kudos on real servers, breaks them time and again, and compares the counts with the log after every
// episode. `make chaos` runs it. Its last line is `faults N events N differences N`; it ends with 1 if that last number is
// not 0, or if the run could not be finished.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"kudos/integration/chaos"
)

// settings are the command line.
type settings struct {
	options chaos.Options
	kinds   string
	report  string
	table   string
	keep    bool
}

func main() {
	s := settings{options: chaos.DefaultOptions()}
	o := &s.options
	flag.IntVar(&o.Faults, "faults", o.Faults, "`number` of faults")
	flag.Uint64Var(&o.Seed, "seed", o.Seed, "decides which faults strike, and on whom")
	flag.StringVar(&s.kinds, "kinds", "", "kinds of fault to take, `with commas` between (default: all): "+strings.Join(chaos.Kinds(), ", "))
	flag.IntVar(&o.FaultsPerEpisode, "per-episode", o.FaultsPerEpisode, "faults between two checks")
	flag.IntVar(&o.Rate, "rate", o.Rate, "events a second")
	flag.DurationVar(&o.DrainTimeout, "drain-timeout", o.DrainTimeout, "how long the lag may take to go back to 0")
	flag.StringVar(&o.Program, "program", "", "`path` of the kudos binary (default: build it)")
	flag.StringVar(&o.Dir, "dir", "", "`directory` for data and logs, which must exist (default: a new one, removed after a run without differences)")
	flag.StringVar(&s.report, "report", "", "write the report as JSON to this `file`")
	flag.StringVar(&s.table, "table", "", "write the report as a table in Markdown to this `file`")
	flag.BoolVar(&s.keep, "keep", false, "leave data and logs in any case")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "chaos: what is %q? It takes options only, see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := s.run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
		os.Exit(1)
	}
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
		fmt.Fprintf(os.Stderr, "data and logs are in %s; what happened when is in %s\n", o.Dir, filepath.Join(o.Dir, "chaos.log"))
	}()
	log, err := os.Create(filepath.Join(o.Dir, "chaos.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	if o.Program == "" {
		if o.Program, err = build(ctx, o.Dir); err != nil {
			return err
		}
	}
	report, err := chaos.Run(ctx, *o)
	if report == nil {
		return err
	}
	return errors.Join(s.tell(report), err)
}

// build makes the program.
func build(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "kudos")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "kudos").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
}

// tell writes the report; a difference is an error.
func (s *settings) tell(r *chaos.Report) error {
	fmt.Println()
	errs := []error{r.WriteTable(os.Stdout)}
	if s.report != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err == nil {
			err = os.WriteFile(s.report, append(text, '\n'), 0o644)
		}
		errs = append(errs, err)
	}
	if s.table != "" {
		var b strings.Builder
		errs = append(errs, r.WriteTable(&b), os.WriteFile(s.table, []byte(b.String()), 0o644))
	}
	fmt.Println()
	fmt.Println(r.Line())
	if r.Differences > 0 {
		errs = append(errs, errors.New("there are differences"))
	}
	return errors.Join(errs...)
}
