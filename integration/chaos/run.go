// Package chaos runs the whole system on real servers and breaks them: three Kafka brokers (replication 3, two in
// sync), MariaDB with a replica, several `kudos processor` and a `kudos producer`, with proxies between, and writers
// that remember what was acknowledged to them.
//
// In go how many faults and a seed; out comes a Report. The run is made of episodes: load runs, faults of several kinds
// strike and end, the load stops, the lag goes back to 0, and package oracle compares. The servers live through all of
// the episodes. Which faults strike, in which order and with which victims follows from the seed; when exactly, and how
// the parts meet it, does not: these are real processes.
//
// Run goes from episode to episode (episode.go); kinds.go lists what strikes, and kinds_*.go is what each does.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"kudos/integration/oracle"
)

// Options of a run.
type Options struct {
	// Program is the path of the kudos binary.
	Program string
	// Faults is how many must have struck before the run ends.
	Faults int
	// For is after how long the run ends even so, with the episode that is under way; 0: never.
	For time.Duration
	// Enough, if not nil, ends the run with the episode that is under way when it is closed.
	Enough <-chan struct{}
	// Seed decides which faults strike, and on whom.
	Seed uint64
	// Kinds are the kinds of fault to take; none: all that this machine can do.
	Kinds []string
	// FaultsPerEpisode are dealt between two checks.
	FaultsPerEpisode int
	// Rate of the load, in events a second.
	Rate int
	// Partitions of the topics, Processors that share them.
	Partitions int32
	Processors int
	// DrainTimeout bounds the wait for the lag to go back to 0.
	DrainTimeout time.Duration
	// Dir is where data and logs go; it must exist. They stay there if the run fails.
	Dir string
	// Progress, if not nil, gets the report as it is after each episode.
	Progress func(*Report) error
	// Out gets a line an episode, Log what happens in between.
	Out io.Writer
	Log *slog.Logger
}

// DefaultOptions suit a machine with two cores.
func DefaultOptions() Options {
	return Options{
		Faults: 200, Seed: 1, FaultsPerEpisode: 8, Rate: 10000, Partitions: 6, Processors: 3,
		DrainTimeout: 2 * time.Minute, Out: io.Discard, Log: slog.New(slog.DiscardHandler),
	}
}

// Validate says what is wrong with the options, all of it.
func (o Options) Validate() error {
	var errs []error
	if o.Program == "" || o.Dir == "" {
		errs = append(errs, errors.New("chaos: the program's path and a directory are needed"))
	}
	if o.Faults < 1 || o.FaultsPerEpisode < 1 || o.Rate < 1 || o.Partitions < 1 || o.Processors < 2 ||
		o.DrainTimeout <= 0 || o.For < 0 {
		errs = append(errs, errors.New(
			"chaos: faults, faults an episode, rate, partitions and drain timeout must be above 0, processors above 1"))
	}
	for _, name := range o.Kinds {
		if !slices.Contains(Kinds(), name) {
			errs = append(errs, fmt.Errorf("chaos: there is no kind of fault %q; there are %v", name, Kinds()))
		}
	}
	return errors.Join(errs...)
}

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
	r := &run{opts: o, begin: begin, sys: sys, watch: newWatch(sys)}
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
		late := r.opts.For > 0 && time.Since(r.begin) >= r.opts.For
		return late || report.Faults >= r.opts.Faults || report.Differences > 0
	}
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
	for _, k := range allKinds {
		switch {
		case len(r.opts.Kinds) > 0 && !slices.Contains(r.opts.Kinds, k.name):
		case k.possible != nil && !k.possible(r.sys):
			r.opts.Log.Warn("this machine cannot do a kind of fault", "kind", k.name)
		default:
			chosen = append(chosen, k)
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
