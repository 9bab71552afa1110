package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

// Plan is which runs to make.
type Plan struct {
	Site       Site
	Contenders []Contender
	// Rounds is how often everything is measured. Within a round, contenders take turns, in another order each time.
	Rounds int
	// Drains are the workloads to drain. EventsOf, where it names a contender, is how many events that one gets.
	Drains   []Workload
	EventsOf map[string]int
	// Latency is measured with each contender, and Recovery with kudos, unless nil.
	Latency  *LatencyPlan
	Recovery *RecoveryPlan

	// Dir is an existing folder for the files of processes. Those of a run that failed stay.
	Dir string
	// Progress is told in words what happens; the last line again and again where again is set.
	Progress func(line string, again bool)
	// Each is told of the report after each run.
	Each func(*Report) error
}

// Run makes all runs and adds them to a report. A run that fails is in it with its error and does not end the others;
// the end of ctx does.
func (p *Plan) Run(ctx context.Context, report *Report) error {
	var errs []error
	for round := range p.Rounds {
		for _, load := range p.Drains {
			for i := range p.Contenders {
				c := p.Contenders[(i+round)%len(p.Contenders)]
				errs = append(errs, p.do(ctx, report, round, c, load, p.drain))
			}
		}
		if p.Latency != nil {
			for i := range p.Contenders {
				c := p.Contenders[(i+round)%len(p.Contenders)]
				errs = append(errs, p.do(ctx, report, round, c, p.Latency.Load, p.latency))
			}
		}
		if p.Recovery != nil {
			for _, c := range p.Contenders {
				if k, ok := c.(*Kudos); ok {
					errs = append(errs, p.do(ctx, report, round, k, p.Recovery.Load, p.recovery))
				}
			}
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

func (p *Plan) drain(ctx context.Context, r *run, into *Run) (err error) {
	into.Drain, err = measureDrain(ctx, p.Site, r)
	return err
}

// do makes one run. Only what concerns all runs is an error.
func (p *Plan) do(ctx context.Context, report *Report, round int, c Contender, load Workload, measure func(context.Context, *run, *Run) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if n := p.EventsOf[c.Name()]; n > 0 {
		load.Events = min(load.Events, n)
	}
	title := fmt.Sprintf("round %d of %d, %s, %s", round+1, p.Rounds, load.Shape.Name, c.Name())
	dir, err := os.MkdirTemp(p.Dir, c.Name()+"-")
	if err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	r := &run{contender: c, load: load, dir: dir, progress: func(line string) { p.Progress(title+": "+line, true) }}
	done := Run{Round: round + 1, Contender: c.Name(), Load: load}
	err = measure(ctx, r, &done)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		done.Drain, done.Latency, done.Recovery, done.Error = nil, nil, nil, err.Error()
		p.Progress(title+": FAILED: "+err.Error(), false)
	} else {
		p.Progress(title+": "+done.String(), false)
		err = os.RemoveAll(dir)
	}
	if r.versions != nil {
		maps.Copy(report.Versions, r.versions)
	}
	report.Runs = append(report.Runs, done)
	if err := p.Each(report); err != nil {
		return err
	}
	return nil
}

// String is the result in a line.
func (r *Run) String() string {
	switch {
	case r.Drain != nil:
		return r.Drain.String()
	case r.Latency != nil:
		return r.Latency.String()
	case r.Recovery != nil:
		return r.Recovery.String()
	}
	return "no result: " + r.Error
}
