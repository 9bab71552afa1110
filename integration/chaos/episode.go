package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"kudos/integration/oracle"
)

const (
	// strikeTimeout bounds one fault, its end included.
	strikeTimeout = 4 * time.Minute
	// checkTimeout bounds the oracle's reading.
	checkTimeout = 5 * time.Minute
	// tornPatience is how long a drain takes at most, if no transaction is torn.
	tornPatience = 40 * time.Second
)

type episode struct {
	number  int
	faults  []*fault
	missed  []*fault
	events  int64 // folded, over all episodes so far
	stall   time.Duration
	drained time.Duration // duration of the drain
	took    time.Duration
	torn    string // transactions that Kafka tore
	diffs   oracle.Differences
}

type run struct {
	opts   Options
	begin  time.Time
	sys    *system
	load   *load
	watch  *watch
	oracle *oracle.Oracle
	deck   *deck
	acked  int64
}

// episode runs the load, injects faults, waits until the lag is 0, and checks.
func (r *run) episode(ctx context.Context, number int, faults []*fault) (*episode, error) {
	e := &episode{number: number}
	begin := time.Now()
	r.watch.begin(r.opts.Partitions)
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
	stall, backwards, sightings := r.watch.end()
	e.stall = stall
	if left != "" { // no comparison is possible
		e.diffs.Add("L", "the lag did not return to 0 within %v: %s", r.opts.DrainTimeout, left)
		return e, nil
	}
	err = r.check(ctx, e, sightings)
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
	err := f.kind.strike(ctx, f)
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
	return r.drain(ctx, r.opts.DrainTimeout)
}

// drain waits until all events are folded and all updates applied, and says what is left after the timeout.
func (r *run) drain(ctx context.Context, timeout time.Duration) (left string, err error) {
	for end := time.Now().Add(timeout); ; {
		db := r.sys.database.Load().direct
		asking, cancel := context.WithTimeout(ctx, 30*time.Second)
		left, err = r.oracle.Left(asking, db)
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

func (r *run) check(ctx context.Context, e *episode, sightings []sighting) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	acks := r.load.acknowledged()
	r.acked += int64(len(acks))
	r.oracle.Acknowledged(acks)
	for _, s := range sightings {
		r.oracle.Saw(s.partition, s.at)
	}
	db := r.sys.database.Load().direct
	result, err := r.oracle.Check(ctx, db)
	if err != nil {
		return fmt.Errorf("checking: %w", err)
	}
	e.events, e.diffs = result.Events, result.Differences
	return nil
}
