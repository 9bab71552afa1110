// Command mutants takes the clauses of the rules in docs/design.md out of the program, one
// at a time, and looks whether a test notices. In goes the table in table.go; out comes the
// same with what caught each, and exit 1 if one was not.
//
// The program itself has no switches for it: a mutant is a text that is replaced in a copy
// of a source file, which go build puts in the place of the file (-overlay).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "run only mutants whose rule and clause (as \"2: a fenced worker\") fit this regular expression")
	flag.BoolVar(&o.skipReal, "skip-real", false, "leave out what needs a real broker")
	flag.IntVar(&o.schedules, "schedules", 20_000, "at most so many schedules of the simulation for each")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Minute, "bound of each test")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type options struct {
	only      string
	skipReal  bool
	schedules int
	timeout   time.Duration
}

func run(ctx context.Context, o options) error {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	l, err := newLab(o)
	if err != nil {
		return err
	}
	defer os.RemoveAll(l.dir)
	bad := 0
	var outcomes []outcome
	for _, m := range mutants {
		if !only.MatchString(fmt.Sprintf("%d: %s", m.rule, m.clause)) || o.skipReal && m.by.real {
			continue
		}
		began := time.Now()
		verdict := l.try(ctx, m)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		out := outcome{m, verdict, time.Since(began)}
		outcomes = append(outcomes, out)
		if verdict != caught {
			bad++
		}
		fmt.Fprintf(os.Stderr, "%3d  rule %d %4.0f s  %-8s %s\n", len(outcomes), m.rule, out.took.Seconds(), first(verdict), m.clause)
	}
	table(outcomes)
	if bad > 0 {
		for _, out := range outcomes {
			if out.verdict != caught {
				fmt.Printf("\nrule %d, %s: %s\n", out.rule, out.clause, out.verdict)
			}
		}
	}
	fmt.Printf("mutants %d survivors %d\n", len(outcomes), bad)
	if bad > 0 {
		return fmt.Errorf("%d of %d were not caught", bad, len(outcomes))
	}
	return nil
}

type outcome struct {
	mutant
	verdict string
	took    time.Duration
}

func table(outcomes []outcome) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "rule\tclause taken out\tcaught by\tseconds")
	for _, o := range outcomes {
		by := o.by.String()
		if o.verdict != caught {
			by = "NOT CAUGHT: " + first(o.verdict)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%.0f\n", o.rule, o.clause, by, o.took.Seconds())
	}
	_ = w.Flush()
}

func (c catcher) String() string {
	switch {
	case c == simulation:
		return "simulation"
	case c.real:
		return c.run + " (" + c.pkg + ", real broker)"
	}
	return c.run + " (" + c.pkg + ")"
}

// root is the folder of the module.
func root() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the module: %w", err)
	}
	return string(out[:len(out)-1]), nil
}
