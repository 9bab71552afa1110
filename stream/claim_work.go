package stream

import (
	"cmp"
	"context"
	"errors"
	"time"

	"kudos/stream/kafka"
)

// This file is a claim and its worker: a batch is worked off, the partition is opened,
// and what fails is parked.

// process is what goka's callback comes to. It never fails the goka processor: that
// would rebalance the whole group for one partition's trouble.
func (c *claim) process(ctx context.Context) {
	c.mu.Lock()
	b, open := c.mu.current, c.mu.state == StateRunning
	c.mu.Unlock()
	if !open && ctx.Err() != nil {
		return // the session is over: nothing is begun any more
	}
	ctx, cancel := outlive(ctx, c.opts.ShutdownTimeout)
	defer cancel()
	if !open {
		c.open(ctx, true)
		return
	}
	err := c.worker.Process(ctx, b)
	switch {
	case err == nil:
		c.worked(b.Next)
		recycle(b.Records)
		c.reuse()
	case canceled(ctx, err):
		c.log.Warn("the batch in hand was given up at the end of the session; it is done anew by the next owner", "error", err)
		c.worker.Close()
	case errors.Is(err, errReopen):
		c.log.Info("opening the partition again", "why", err)
		c.open(ctx, true)
	default:
		c.fail(err)
	}
}

// worked notes that all up to next has been worked off.
func (c *claim) worked(next kafka.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if next != c.mu.position || c.lagLocked() == 0 { // a tick that leaves records lying is no progress
		c.mu.movedAt = time.Now()
	}
	c.mu.position, c.mu.failures = next, 0
	if c.mu.doubt != (Trouble{}) {
		c.log.Info("partition goes on", "offset", next.Offset)
		c.mu.doubt = Trouble{}
		c.mu.since = time.Now()
	}
}

// reuse keeps the memory of a batch that nobody has any more.
func (c *claim) reuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.handed == nil {
		return // a tick
	}
	clear(c.mu.handed) // or the records would be kept, too
	c.mu.handed, c.mu.spare = nil, c.mu.handed[:0]
}

// outlive returns a context that goes on for d after ctx ended: the batch in hand is
// finished on shutdown, but not for ever.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(d, cancel)
		context.AfterFunc(detached, func() { timer.Stop() })
	})
	return detached, func() { stop(); cancel() }
}

// fence runs the worker's Fence at assignment, before goka reads the table. Its
// failure is not fatal: the partition is then opened anew.
func (c *claim) fence(ctx context.Context) {
	if err := c.worker.Fence(ctx); err != nil && !canceled(ctx, err) {
		c.fail(err)
	}
}

// open establishes position and state; again starts over with the fence.
func (c *claim) open(ctx context.Context, again bool) {
	pos, err := c.reopen(ctx, again)
	switch {
	case canceled(ctx, err):
		return // the session is over, which closes the worker
	case err != nil:
		c.fail(err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.state == StateParked {
		c.mu.doubt = c.mu.trouble
	}
	c.setState(StateRunning, Trouble{})
	c.mu.position, c.mu.seek, c.mu.pending = pos, true, nil
	c.mu.fetched, c.mu.lastDone = pos, time.Now()
	c.log.Info("partition is running", "offset", pos.Offset) // benchmarks count from here (package bench)
	c.loop.wake()
}

func (c *claim) reopen(ctx context.Context, again bool) (kafka.Position, error) {
	if again {
		c.worker.Close()
		if err := c.worker.Fence(ctx); err != nil {
			return kafka.Position{}, err
		}
	}
	pos, err := c.worker.Open(ctx)
	if err != nil {
		return kafka.Position{}, err
	}
	return pos, c.verify(ctx, pos)
}

// fail closes the partition's work and decides what comes next: nothing until a new
// assignment (fenced), another look at the park interval (parked), or another try with
// growing delays.
func (c *claim) fail(err error) {
	c.worker.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parkLocked(err)
}

// parkLocked is fail without the worker, for the poll loop: a batch may be under way,
// and is finished first.
func (c *claim) parkLocked(err error) {
	c.mu.pending = nil
	c.loop.wake()
	if errors.Is(err, kafka.ErrFenced) {
		c.log.Warn("gave the partition up", "error", err)
		c.mu.retryAt = time.Now().Add(c.rejoinAfter())
		c.setState(StateFenced, Trouble{Reason: err.Error()})
		return
	}
	why := TroubleOf(err)
	if why.Cause == CauseLoss {
		why.Remedy = cmp.Or(c.opts.LossRemedy, why.Remedy)
	}
	c.mu.retryAt = time.Now().Add(c.backoffLocked(parks(err)))
	if c.mu.trouble.Reason != why.Reason && c.mu.doubt.Reason != why.Reason {
		c.log.Warn("partition is parked", "cause", why.Cause, "reason", why.Reason, "remedy", cmp.Or(why.Remedy, byItself), "next_look", time.Until(c.mu.retryAt).Round(time.Millisecond))
	}
	c.setState(StateParked, why)
	c.notify()
}

// rejoinAfter is how long a fenced partition waits for a rebalance to come by itself:
// by then the group has noticed a member that was away. If none has come, nobody took
// the partition (a transaction that timed out fences, too), and the group is asked who
// owns it.
func (c *claim) rejoinAfter() time.Duration { return 2 * c.opts.SessionTimeout }

const firstBackoff = 50 * time.Millisecond

func (c *claim) backoffLocked(park bool) time.Duration {
	if park {
		return c.opts.ParkInterval
	}
	d := firstBackoff << min(c.mu.failures, 16)
	c.mu.failures++
	return min(d, c.opts.ParkInterval)
}

// setState is called with mu held.
func (c *claim) setState(state string, why Trouble) {
	if c.mu.state != state || c.mu.trouble.Reason != why.Reason {
		c.mu.since = time.Now()
	}
	c.mu.state, c.mu.trouble = state, why
}
