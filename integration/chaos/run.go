// Package chaos runs the whole system on real servers and injects faults: three Kafka brokers (replication factor 3,
// min.insync.replicas 2), MariaDB with a replica, several `kudos processor` and a `kudos producer`, proxies between
// them, and writers that record what was acknowledged.
//
// Given the number of faults and a seed, Run returns a Report. A run consists of episodes: the load runs, faults of
// several kinds strike and end, the load stops, the lag drops to 0, and package oracle compares. The servers keep
// running through all episodes. The seed determines which faults strike, in which order and on which victims; the exact
// timing and interleaving vary, since these are real processes.
//
// run.go and episode.go control the run; kinds.go lists the kinds of fault, which kinds_*.go implement.
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

// Options configure a run.
type Options struct {
	Program string
	// Faults is how many faults must have struck before the run ends.
	Faults int
	// For ends the run earlier, after the episode in which it elapses; 0: no limit.
	For time.Duration
	// Enough, if not nil, ends the run after the current episode when it is closed.
	Enough <-chan struct{}
	Seed   uint64
	// Kinds are the kinds of fault to inject; none: all that this machine supports.
	Kinds []string
	// FaultsPerEpisode is how many faults strike between two checks.
	FaultsPerEpisode int
	// Rate of the load, in events per second.
	Rate int
	// Partitions of the topics, and Processors that share them.
	Partitions   int32
	Processors   int
	DrainTimeout time.Duration
	// Dir is the directory of data and logs; it must exist. They are kept if the run fails.
	Dir string
	// Progress, if not nil, is called with the report after each episode.
	Progress func(*Report) error
	// Out gets a line per episode, Log the events in between.
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

// Validate returns all errors in the options.
func (o Options) Validate() error {
	var errs []error
	if o.Program == "" || o.Dir == "" {
		errs = append(errs, errors.New("chaos: the program's path and a directory are required"))
	}
	if o.Faults < 1 || o.FaultsPerEpisode < 1 || o.Rate < 1 || o.Partitions < 1 || o.Processors < 2 ||
		o.DrainTimeout <= 0 || o.For < 0 {
		errs = append(errs, errors.New(
			"chaos: faults, faults per episode, rate, partitions and drain timeout must be > 0, processors > 1"))
	}
	for _, name := range o.Kinds {
		if !slices.Contains(Kinds(), name) {
			errs = append(errs, fmt.Errorf("chaos: unknown kind of fault %q; must be one of %v", name, Kinds()))
		}
	}
	return errors.Join(errs...)
}

// Run starts everything, injects faults until there are enough, and shuts everything down. Differences are in the
// report and not an error; an episode with differences is the last one. An error means that the run could not continue.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	begin := time.Now() // including the start of the servers
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
		return nil, errors.New("this machine supports none of the kinds of fault")
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
	background, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { r.watch.run(background) })
	work.Go(func() { r.sys.lookAfter(background) })
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

func (r *run) enough(report *Report) bool {
	select {
	case <-r.opts.Enough: // blocks forever if nil
		return true
	default:
		late := r.opts.For > 0 && time.Since(r.begin) >= r.opts.For
		return late || report.Faults >= r.opts.Faults || report.Differences > 0
	}
}

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

func (r *run) chosen() []*kind {
	var chosen []*kind
	for _, k := range allKinds {
		switch {
		case len(r.opts.Kinds) > 0 && !slices.Contains(r.opts.Kinds, k.name):
		case k.possible != nil && !k.possible(r.sys):
			r.opts.Log.Warn("this machine does not support a kind of fault", "kind", k.name)
		default:
			chosen = append(chosen, k)
		}
	}
	return chosen
}

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
		text += "  torn by Kafka, parked and repaired: " + e.torn
	}
	return text
}
