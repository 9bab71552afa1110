// Command mutants removes the clauses of the rules in docs/design.md from the program, one at a time, and checks that a
// test notices. Its input is the table of mutants (table.go and the files that add to it); its output is the table with
// the tests that caught each mutant. It exits with 1 if a mutant was not caught.
//
// A mutant is caught if a named test fails that passes three times without the mutant. A failed build, a panic outside
// of a test, or a timeout catches nothing.
//
// The program has no switches for this: go build uses copies of source files with replaced texts (-overlay).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "run only mutants whose rule and clause (such as \"2: a fenced worker\") match this regular expression")
	flag.BoolVar(&o.skipReal, "skip-real", false, "skip mutants that need a real broker")
	flag.IntVar(&o.schedules, "schedules", 20_000, "maximum number of simulation schedules per mutant")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Minute, "timeout for the tests of each mutant")
	flag.IntVar(&o.parallel, "parallel", 2, "number of mutants tested in parallel")
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
	parallel  int
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
	var chosen []mutant
	for _, m := range mutants {
		if only.MatchString(fmt.Sprintf("%d: %s", m.rule, m.clause)) && !(o.skipReal && m.by.real) {
			chosen = append(chosen, m)
		}
	}
	l.prepare(ctx, chosen)
	outcomes := make([]outcome, len(chosen))
	var g errgroup.Group
	g.SetLimit(max(1, o.parallel))
	for i, m := range chosen {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			began := time.Now()
			status, by, said := l.try(ctx, m)
			outcomes[i] = outcome{m, status, by, time.Since(began)}
			fmt.Fprintf(os.Stderr, "rule %d %4.0f s  %-8s %s\n%18s%s  %.150s\n",
				m.rule, outcomes[i].took.Seconds(), first(status), m.clause, "", strings.Join(by, ", "), said)
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return report(outcomes)
}

type outcome struct {
	mutant
	status string
	tests  []string // that caught it
	took   time.Duration
}

func report(outcomes []outcome) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "rule\tremoved clause\tcaught first by\tseconds")
	var details strings.Builder
	survivors, errs := 0, 0
	for _, o := range outcomes {
		where := o.by.pkg
		if o.by.real {
			where += ", real broker"
		}
		by := fmt.Sprintf("%s (%s)", strings.Join(o.tests[:min(1, len(o.tests))], ""), where) // stderr has them all
		if o.status != caught {
			by = first(o.status)
			fmt.Fprintf(&details, "\nrule %d, %s: %s\n", o.rule, o.clause, o.status)
			if o.status == survived {
				survivors++
			} else {
				errs++
			}
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%.0f\n", o.rule, o.clause, by, o.took.Seconds())
	}
	_ = table.Flush()
	fmt.Printf("%smutants %d survivors %d errors %d\n", details.String(), len(outcomes), survivors, errs)
	if survivors+errs > 0 {
		return fmt.Errorf("of %d mutants, %d survived and %d need investigation", len(outcomes), survivors, errs)
	}
	return nil
}

func root() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	return string(out[:len(out)-1]), nil
}
