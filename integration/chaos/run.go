// Package chaos runs the whole system on real servers and injects faults: three Kafka brokers (replication factor 3,
// min.insync.replicas 2), MariaDB with a replica, several `kudos processor`, three `kudos reader` that share reactions,
// a `kudos producer`, proxies between them, writers that record what was acknowledged, and clients of the readers that
// record the responses.
//
// Given the number of faults and a seed, Run returns a Report. A run consists of episodes: the load runs, faults of
// several kinds strike and end, the load stops, the lag drops to 0, and package oracle compares. The servers keep
// running through all episodes. The seed determines which faults strike, in which order and on which victims; the exact
// timing and interleaving vary, since these are real processes.
//
// run.go controls the run; kinds.go lists the kinds of fault, which kinds_*.go implement.
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
	Program          string
	Build            string          // names the sources of the program
	Earlier          *Report         // of earlier runs, which the report adds up with if they are of the same build
	Previous         string          // another version, which rolling upgrades alternate with; may be empty
	Faults           int             // how many must have struck before the run ends
	For              time.Duration   // ends the run earlier, after the episode in which it elapses; 0: no limit
	Enough           <-chan struct{} // ends the run after the current episode when it is closed; may be nil
	Seed             uint64
	Kinds            []string // of fault to inject; none: all that this machine supports
	FaultsPerEpisode int      // that strike between two checks
	Rate             int      // of the load, in events per second
	Partitions       int32    // of the topics
	Processors       int      // share the partitions
	DrainTimeout     time.Duration
	Dir              string              // of data and logs, kept if the run fails; it must exist
	Progress         func(*Report) error // is called with the report after each episode; may be nil
	Out              io.Writer           // gets a line per episode
	Log              *slog.Logger        // gets the events in between
}

// DefaultOptions suit a machine with two cores.
func DefaultOptions() Options {
	return Options{Faults: 200, Seed: 1, FaultsPerEpisode: 8, Rate: 10000, Partitions: 6, Processors: 3,
		DrainTimeout: 2 * time.Minute, Out: io.Discard, Log: slog.New(slog.DiscardHandler)}
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

type run struct {
	opts   Options
	begin  time.Time
	sys    *system
	load   *load
	watch  *watch
	oracle *oracle.Oracle
	replay *oracle.Replay
	deck   *deck
	acked  int64
	hangs  map[int]int // of group coordinators, by broker, so far; see hung.go
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
	r := &run{opts: o, begin: begin, sys: sys, watch: newWatch(sys), hangs: map[int]int{}}
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
	if r.replay, err = r.oracle.NewReplay(ctx, askedPosts); err != nil {
		return nil, err
	}
	if r.load, err = newLoad(r.sys); err != nil {
		return nil, err
	}
	defer r.load.close()
	background, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { r.watch.run(background) })
	work.Go(func() { r.watch.mark(background) })
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
		return late || report.faults() >= r.opts.Faults || report.Differences > report.before.Differences
	}
}

func (r *run) next(ctx context.Context, report *Report) error {
	n := min(r.opts.FaultsPerEpisode, r.opts.Faults-report.faults())
	e, err := r.episode(ctx, report.Episodes-report.before.Episodes+1, r.deck.deal(n))
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
		e.number, strings.Join(names, ","), e.events, e.stall, e.drained.Seconds(), e.took.Seconds())
	if len(e.missed) > 0 {
		text += fmt.Sprintf("  missed %d", len(e.missed))
	}
	if e.torn != "" {
		text += "  torn by Kafka, parked and repaired: " + e.torn
	}
	return text
}

const (
	strikeTimeout = 4 * time.Minute  // bounds one fault, its end included
	checkTimeout  = 5 * time.Minute  // bounds the oracle's reading
	tornPatience  = 40 * time.Second // how long a drain takes at most, if no transaction is torn
)

type episode struct {
	number         int
	faults, missed []*fault
	events         int64         // folded, over all episodes so far
	stall          float64       // the longest one, in seconds
	stalls         []Stall       // the worst ones
	drained        time.Duration // duration of the drain
	took           time.Duration
	torn           string         // transactions that Kafka tore
	hung           []string       // group coordinators that hung in Kafka
	said           map[string]int // evidence of what was compared
	diffs          oracle.Differences
}

// episode runs the load, injects faults, waits until the lag is 0, and checks.
func (r *run) episode(ctx context.Context, number int, faults []*fault) (*episode, error) {
	e := &episode{number: number, said: map[string]int{}}
	begin := time.Now()
	r.watch.begin(r.opts.Partitions)
	asked := r.askReaders(ctx)
	defer asked.stop()
	loading, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	loaded := make(chan error, 1)
	go func() { loaded <- r.load.run(loading) }()

	err := r.strike(ctx, e, faults)
	stopLoad()
	if err := errors.Join(err, <-loaded); err != nil {
		return e, err
	}
	ended := time.Now()
	left, err := r.drainOrRepair(ctx, e)
	if err != nil {
		return e, err
	}
	e.drained = time.Since(ended)
	backwards, sightings := r.watch.end(e)
	if left == "" {
		if left, err = r.readersDrain(ctx, e); err != nil {
			return e, err
		}
	}
	asked.stop()
	if left != "" { // no comparison is possible
		e.diffs.Add("L", "the lag did not return to 0 within %v: %s", r.opts.DrainTimeout, left)
		return e, nil
	}
	err = r.check(ctx, e, sightings, asked)
	for _, text := range backwards {
		e.diffs.Add("I3", "%s", text)
	}
	e.took = time.Since(begin)
	return e, err
}

// strike injects the faults of each lane sequentially, with all lanes running concurrently.
func (r *run) strike(ctx context.Context, e *episode, faults []*fault) error {
	lanes := map[lane][]*fault{}
	for _, f := range faults {
		f.sys, f.load = r.sys, r.load
		lanes[f.kind.lane] = append(lanes[f.kind.lane], f)
	}
	var work sync.WaitGroup
	for _, lane := range lanes {
		work.Go(func() {
			for _, f := range lane {
				if f.err = r.strikeOne(ctx, f); f.err != nil && !errors.Is(f.err, errMissed) {
					return // the episode is void
				}
			}
		})
	}
	work.Wait()
	var errs []error
	for _, f := range faults {
		switch {
		case f.err == nil:
			e.faults = append(e.faults, f)
		case errors.Is(f.err, errMissed):
			e.missed = append(e.missed, f)
		default:
			errs = append(errs, fmt.Errorf("fault %d, %s on %s: %w", f.number, f.kind.name, f.victim, f.err))
		}
	}
	return errors.Join(errs...)
}

func (r *run) strikeOne(ctx context.Context, f *fault) error {
	ctx, cancel := context.WithTimeoutCause(ctx, strikeTimeout, fmt.Errorf("not over after %v", strikeTimeout))
	defer cancel()
	if err := wait(ctx, f.between(100*time.Millisecond, 2*time.Second)); err != nil {
		return err
	}
	over := r.watch.struck(f.kind.name, 0)
	err := f.kind.strike(ctx, f)
	over()
	r.opts.Log.Info("fault over", "kind", f.kind.name, "number", f.number, "error", err)
	return err
}

// drainOrRepair drains. If the system stalls because Kafka tore a transaction, it runs the action that kudos names.
func (r *run) drainOrRepair(ctx context.Context, e *episode) (left string, err error) {
	left, err = r.drain(ctx, min(r.opts.DrainTimeout, tornPatience))
	if err != nil || left == "" {
		return left, err
	}
	if e.torn, err = r.sys.torn(ctx); err != nil {
		return "", err
	}
	if e.torn != "" {
		r.opts.Log.Error("Kafka tore a transaction; running the action that kudos names", "where", e.torn, "left", left)
		if err := r.action(ctx); err != nil {
			return "", fmt.Errorf("running the action for a torn transaction: %w", err)
		}
	}
	if e.hung, err = r.restartHung(ctx); err != nil {
		return "", err
	}
	return r.drain(ctx, r.opts.DrainTimeout)
}

// readersDrain waits for the readers. If they stall because a group coordinator hangs in Kafka, its broker restarts.
func (r *run) readersDrain(ctx context.Context, e *episode) (left string, err error) {
	left, err = r.readersLeft(ctx, min(r.opts.DrainTimeout, tornPatience))
	if err != nil || left == "" {
		return left, err
	}
	hung, err := r.restartHung(ctx)
	if err != nil {
		return "", err
	}
	e.hung = append(e.hung, hung...)
	return r.readersLeft(ctx, r.opts.DrainTimeout)
}

// drain waits until all events are folded and all updates applied, and says what is left after the timeout.
func (r *run) drain(ctx context.Context, timeout time.Duration) (left string, err error) {
	for end := time.Now().Add(timeout); ; {
		asking, cancel := context.WithTimeout(ctx, 30*time.Second)
		left, err = r.oracle.Left(asking, r.sys.database.Load().direct)
		cancel()
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err == nil && left == "":
			return "", nil
		case time.Now().After(end):
			if err != nil {
				left = err.Error()
			}
			return left, nil
		}
		if err := wait(ctx, 200*time.Millisecond); err != nil {
			return "", err
		}
	}
}

func (r *run) check(ctx context.Context, e *episode, sightings []oracle.Seen, asked *asked) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	acks := r.load.acknowledged()
	r.acked += int64(len(acks))
	r.oracle.Acknowledged(acks)
	for _, s := range sightings {
		r.oracle.Saw(s)
	}
	result, err := r.oracle.Check(ctx, r.sys.database.Load().direct)
	if err != nil {
		return fmt.Errorf("checking: %w", err)
	}
	e.events, e.diffs = result.Events, result.Differences
	return errors.Join(r.checkReaders(ctx, e, asked), r.checkFollowers(ctx, e))
}
