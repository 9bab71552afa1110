package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"kudos/integration/oracle"
)

// Run starts everything, has faults strike until there were enough of them, and ends everything. Differences are in the
// report, not an error; after an episode that has some, the run ends. An error is a run that could not go on.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	begin := time.Now() // servers take their time, too
	sys, err := startSystem(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	r := &run{opts: o, begin: begin, sys: sys, watch: newWatch(sys.database)}
	report, err := r.all(ctx)
	if err = errors.Join(err, sys.close()); err != nil {
		return report, fmt.Errorf("chaos: %w", err)
	}
	return report, nil
}

func (r *run) all(ctx context.Context) (_ *Report, err error) {
	chosen := r.chosen()
	if len(chosen) == 0 {
		return nil, errors.New("this machine can do none of the kinds of fault")
	}
	r.deck = newDeck(r.opts.Seed, chosen)
	if r.oracle, err = oracle.New(r.sys.kafka.Brokers()); err != nil {
		return nil, err
	}
	defer r.oracle.Close()
	if r.load, err = newLoad(r.sys); err != nil {
		return nil, err
	}
	defer r.load.close()
	beside, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { r.watch.run(beside) })
	work.Go(func() { r.sys.lookAfter(beside) })
	defer work.Wait()
	defer cancel()

	report := newReport(r.opts, chosen)
	for !r.enough(report) {
		if err := r.next(ctx, report); err != nil {
			return report, err
		}
	}
	return report, nil
}

// enough tells whether the run is to end.
func (r *run) enough(report *Report) bool {
	select {
	case <-r.opts.Enough: // never, if nil
		return true
	default:
	}
	late := r.opts.For > 0 && time.Since(r.begin) >= r.opts.For
	return late || report.Faults >= r.opts.Faults || report.Differences > 0
}

// next runs an episode and takes it into the report; one that could not be finished counts for nothing.
func (r *run) next(ctx context.Context, report *Report) error {
	n := min(r.opts.FaultsPerEpisode, r.opts.Faults-report.Faults)
	e, err := r.episode(ctx, report.Episodes+1, r.deck.deal(n))
	if err != nil {
		return fmt.Errorf("episode %d: %w", e.number, err)
	}
	for _, f := range e.missed {
		r.deck.giveBack(f.kind)
	}
	report.add(e)
	report.finish(r)
	fmt.Fprintln(r.opts.Out, e.line()+fmt.Sprintf("  faults so far %d", report.Faults))
	if e.diffs.Total > 0 {
		fmt.Fprintln(r.opts.Out, e.diffs.String())
	}
	if r.opts.Progress != nil {
		return r.opts.Progress(report)
	}
	return nil
}

// chosen are the kinds of fault to deal.
func (r *run) chosen() []*kind {
	var chosen []*kind
	for _, k := range allKinds() {
		switch {
		case len(r.opts.Kinds) > 0 && !slices.Contains(r.opts.Kinds, k.name):
		case k.possible != nil && !k.possible(r.sys):
			r.opts.Log.Warn("this machine cannot do a kind of fault", "kind", k.name)
		default:
			chosen = append(chosen, &k)
		}
	}
	return chosen
}

// line tells of an episode.
func (e *episode) line() string {
	var names []string
	for _, f := range e.faults {
		names = append(names, f.kind.name)
	}
	slices.Sort(names)
	text := fmt.Sprintf("episode %d  %s  events %d  longest stall %.1fs  drained in %.1fs  took %.1fs",
		e.number, strings.Join(names, ","), e.events, e.stall.Seconds(), e.drained.Seconds(), e.took.Seconds())
	if len(e.missed) > 0 {
		text += fmt.Sprintf("  missed %d", len(e.missed))
	}
	if e.torn != "" {
		text += "  torn by Kafka, parked and mended: " + e.torn
	}
	return text
}
