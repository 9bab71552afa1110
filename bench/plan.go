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

// Plan is a series of runs.
type Plan struct {
	Site       Site
	Contenders []Contender
	Rounds     int // how often everything is measured; contenders take turns, each round starting with another
	// Brokers are broker configurations that the site knows, by name; none: the default. Each is measured.
	Brokers []string
	// Drains are the workloads to drain. EventsOf, by contender name, limits the number of events for that contender.
	Drains   []Workload
	EventsOf map[string]int
	// Latency is measured with each contender; Recovery and Producer, unless nil, with kudos only.
	Latency  []*LatencyPlan
	Recovery *Workload
	Producer *ProducerPlan

	Dir      string                        // existing, for the files of processes; those of a failed run are kept
	Progress func(line string, again bool) // called with each progress line; again: it updates the last one
	Each     func(*Report) error           // unless nil, called with the report after each run
}

// step is one thing to measure. measure makes one run and sets its result in the Run.
type step struct {
	load       Workload
	contenders []Contender
	measure    func(*run, context.Context, *Run) error
}

func (p *Plan) steps() (steps []step) {
	for _, load := range p.Drains {
		steps = append(steps, step{load, p.Contenders, (*run).measureDrain})
	}
	for _, plan := range p.Latency {
		steps = append(steps, step{plan.Load, p.Contenders, func(r *run, ctx context.Context, into *Run) error {
			return r.measureLatency(ctx, plan, into)
		}})
	}
	// Other contenders have neither: they do not report when they have recovered, and take no likes over HTTP.
	kudos := slices.DeleteFunc(slices.Clone(p.Contenders), func(c Contender) bool { _, ok := c.(*Kudos); return !ok })
	if p.Recovery != nil {
		steps = append(steps, step{*p.Recovery, kudos, (*run).measureRecovery})
	}
	if p.Producer != nil {
		steps = append(steps, step{p.Producer.load(), kudos, (*run).measureProducer})
	}
	return steps
}

// Run makes all runs, until ctx ends, and adds them to the report. A failed run is added with its error.
func (p *Plan) Run(ctx context.Context, report *Report) error {
	for round := range p.Rounds {
		for _, s := range p.steps() {
			for i := range s.contenders {
				// Each round starts with another contender, since a machine may slow down in the course of a round.
				contender := s.contenders[(i+round)%len(s.contenders)]
				for _, broker := range append(p.Brokers, "")[:max(1, len(p.Brokers))] {
					if err := p.run(ctx, report, Run{Round: round + 1, Broker: broker}, s, contender); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// run makes one run. It returns an error only if the remaining runs cannot proceed either.
func (p *Plan) run(ctx context.Context, report *Report, done Run, s step, c Contender) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if n := p.EventsOf[c.Name()]; n > 0 {
		s.load.Events = min(s.load.Events, n)
	}
	done.Contender, done.Load, done.LoadAverage = c.Name(), s.load, loadAverage()
	title := fmt.Sprintf("round %d of %d, %s, %s", done.Round, p.Rounds, s.load.Shape.Name, done.Label())
	dir, err := os.MkdirTemp(p.Dir, c.Name()+"-")
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	progress := func(line string) { p.Progress(title+": "+line, true) }
	r := &run{plan: p, contender: c, load: s.load, dir: dir, progress: progress}
	err = r.onServers(ctx, report.Versions, &done, func() error { return s.measure(r, ctx, &done) })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.As(err, new(*unusableError)) {
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

// onServers opens servers for a run, records their versions, measures, and kills a process that is still running.
func (r *run) onServers(ctx context.Context, versions map[string]string, into *Run, measure func() error) (err error) {
	if r.servers, err = r.plan.Site.Open(ctx, r.contender, into.Broker); err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	defer r.servers.disconnect()
	defer func() { err = errors.Join(err, r.plan.Site.Close()) }()
	into.Processes = append(slices.Sorted(maps.Keys(r.servers.Processes)), r.contender.Name(), SenderProcess)
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

// NewProgress returns a Plan's Progress that prints to w. Updates, on a terminal only, overwrite the last line.
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
