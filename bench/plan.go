package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	// Latency is measured with each contender, Recovery and Producer with kudos, unless nil.
	Latency  *LatencyPlan
	Recovery *RecoveryPlan
	Producer *ProducerPlan

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
	for round := range p.Rounds {
		for _, load := range p.Drains {
			if err := p.takeTurns(ctx, report, round, p.Contenders, load, p.drain); err != nil {
				return err
			}
		}
		if p.Latency != nil {
			if err := p.takeTurns(ctx, report, round, p.Contenders, p.Latency.Load, p.latency); err != nil {
				return err
			}
		}
		if p.Recovery != nil {
			if err := p.takeTurns(ctx, report, round, p.kudosAlone(), p.Recovery.Load, p.recovery); err != nil {
				return err
			}
		}
		if p.Producer != nil {
			if err := p.takeTurns(ctx, report, round, p.kudosAlone(), p.Producer.load(), p.accepting); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure makes one run, and puts its result into the Run.
type measure func(context.Context, *run, *Run) error

// takeTurns has contenders run with a workload one after another. Another one is the first in each round: a machine may
// become slower in the course of one.
func (p *Plan) takeTurns(ctx context.Context, report *Report, round int, contenders []Contender, load Workload, m measure) error {
	for i := range contenders {
		if err := p.do(ctx, report, round, contenders[(i+round)%len(contenders)], load, m); err != nil {
			return err
		}
	}
	return nil
}

// kudosAlone is for what peers cannot be measured at: they do not tell when they have recovered, and take no likes over
// HTTP.
func (p *Plan) kudosAlone() []Contender {
	return slices.DeleteFunc(slices.Clone(p.Contenders), func(c Contender) bool { _, ok := c.(*Kudos); return !ok })
}

func (p *Plan) drain(ctx context.Context, r *run, into *Run) (err error) {
	into.Drain, err = measureDrain(ctx, p.Site, r)
	return err
}

// do makes one run. Only what concerns all runs is an error.
func (p *Plan) do(ctx context.Context, report *Report, round int, c Contender, load Workload, m measure) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if n := p.EventsOf[c.Name()]; n > 0 {
		load.Events = min(load.Events, n)
	}
	done := Run{Round: round + 1, Contender: c.Name(), Load: load}
	title := fmt.Sprintf("round %d of %d, %s, %s", round+1, p.Rounds, load.Shape.Name, c.Name())
	dir, err := os.MkdirTemp(p.Dir, c.Name()+"-")
	if err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	r := &run{contender: c, load: load, dir: dir, progress: func(line string) { p.Progress(title+": "+line, true) }}
	err = m(ctx, r, &done)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if unusable := (*UnusableError)(nil); errors.As(err, &unusable) {
		return err
	}
	if err != nil {
		done.Drain, done.Latency, done.Recovery, done.Producer, done.Error = nil, nil, nil, nil, err.Error()
		p.Progress(title+": FAILED: "+err.Error(), false)
	} else {
		p.Progress(title+": "+done.String(), false)
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("%s: %w", title, err)
		}
	}
	maps.Copy(report.Versions, r.versions)
	report.Runs = append(report.Runs, done)
	return p.Each(report)
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
	case r.Producer != nil:
		return acceptedInALine(r.Producer)
	}
	return "no result: " + r.Error
}
