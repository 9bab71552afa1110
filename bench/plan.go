package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	Recovery *Workload
	Producer *ProducerPlan

	// Dir is an existing folder for the files of processes. Those of a run that failed stay.
	Dir string
	// Progress is told in words what happens; the last line again and again where again is set.
	Progress func(line string, again bool)
	// Each, unless nil, is called with the report after each run.
	Each func(*Report) error
}

// step is one thing to measure. measure makes one run, and puts its result into the Run.
type step struct {
	load       Workload
	contenders []Contender
	measure    func(*run, context.Context, *Run) error
}

func (p *Plan) steps() (steps []step) {
	for _, load := range p.Drains {
		steps = append(steps, step{load, p.Contenders, (*run).measureDrain})
	}
	if p.Latency != nil {
		steps = append(steps, step{p.Latency.Load, p.Contenders, (*run).measureLatency})
	}
	// What others cannot be measured at: they do not tell when they have recovered, and take no likes over HTTP.
	kudos := slices.DeleteFunc(slices.Clone(p.Contenders), func(c Contender) bool { _, ok := c.(*Kudos); return !ok })
	if p.Recovery != nil {
		steps = append(steps, step{*p.Recovery, kudos, (*run).measureRecovery})
	}
	if p.Producer != nil {
		steps = append(steps, step{p.Producer.load(), kudos, (*run).measureProducer})
	}
	return steps
}

// Run makes all runs, until ctx ends, and adds them to a report. One that fails is in it with its error.
func (p *Plan) Run(ctx context.Context, report *Report) error {
	for round := range p.Rounds {
		for _, s := range p.steps() {
			for i := range s.contenders {
				// Another one is the first in each round: a machine may become slower in the course of one.
				if err := p.run(ctx, report, round, s, s.contenders[(i+round)%len(s.contenders)]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// run makes one run. Only what concerns all runs is an error.
func (p *Plan) run(ctx context.Context, report *Report, round int, s step, c Contender) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if n := p.EventsOf[c.Name()]; n > 0 {
		s.load.Events = min(s.load.Events, n)
	}
	done := Run{Round: round + 1, Contender: c.Name(), Load: s.load}
	title := fmt.Sprintf("round %d of %d, %s, %s", round+1, p.Rounds, s.load.Shape.Name, c.Name())
	dir, err := os.MkdirTemp(p.Dir, c.Name()+"-")
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	progress := func(line string) { p.Progress(title+": "+line, true) }
	r := &run{plan: p, contender: c, load: s.load, dir: dir, progress: progress}
	err = r.onServers(ctx, report.Versions, func() error { return s.measure(r, ctx, &done) })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if unusable := (*unusableError)(nil); errors.As(err, &unusable) {
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
	report.Runs = append(report.Runs, done)
	if p.Each == nil {
		return nil
	}
	return p.Each(report)
}

// onServers opens servers for a run, adds their versions, measures, and ends what still runs then.
func (r *run) onServers(ctx context.Context, versions map[string]string, measure func() error) (err error) {
	if r.servers, err = r.plan.Site.Open(ctx, r.contender); err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	defer r.servers.disconnect()
	defer func() { err = errors.Join(err, r.plan.Site.Close()) }()
	if err := r.servers.connect(); err != nil {
		return err
	}
	of, err := r.servers.versions(ctx)
	if err != nil {
		return err
	}
	maps.Copy(versions, of)
	defer func() {
		if r.process != nil {
			r.process.Kill()
		}
	}()
	return measure()
}

// NewProgress prints a Plan's progress. Lines that come again are overwritten on a terminal, and left out elsewhere.
func NewProgress(w io.Writer, terminal bool) func(line string, again bool) {
	return func(line string, again bool) {
		switch {
		case terminal && again:
			fmt.Fprintf(w, "\r\x1b[K%s", line)
		case terminal:
			fmt.Fprintf(w, "\r\x1b[K%s\n", line)
		case !again:
			fmt.Fprintln(w, line)
		}
	}
}
