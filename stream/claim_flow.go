package stream

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// This file is a claim and the poll loop: how much may wait here, and what the loop has
// to tell the client so that it stays so.

// flow says what the poll loop has to tell the client: whether the partition has to
// be paused now, and the position to move to, if any.
func (c *claim) flow(now time.Time) (paused, changed bool, seek *kgo.EpochOffset) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// What is pending is bounded. But pausing has the client throw away what it has
	// fetched, and wait for a fetch of the others before this one is resumed: so it
	// comes late (see waitForRoom), and resuming only at one batch.
	full := len(c.mu.pending) >= pendingBatches*c.opts.MaxBatch
	switch {
	case !full:
		c.mu.fullSince = time.Time{}
	case c.mu.fullSince.IsZero():
		c.mu.fullSince = now
	}
	switch {
	case c.mu.state != StateRunning:
		paused = true
	case c.mu.paused:
		paused = len(c.mu.pending) >= c.opts.MaxBatch
	default:
		paused = full && now.Sub(c.mu.fullSince) >= holdPoll
	}
	changed = paused != c.mu.paused
	if c.kickDue(now) {
		changed, c.mu.kickAt = true, time.Time{}
	}
	c.mu.paused = paused
	if c.mu.seek && c.mu.state == StateRunning {
		seek = &kgo.EpochOffset{Offset: c.mu.position.Offset, Epoch: c.mu.position.Epoch}
	}
	return paused, changed, seek
}

// sought tells that the client stands at an offset that flow asked for.
func (c *claim) sought(at kgo.EpochOffset) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.position == (Position{Offset: at.Offset, Epoch: at.Epoch}) {
		c.mu.seek, c.mu.kickAt = false, time.Now().Add(kickAfter)
	}
}

// kickAfter is how long after a seek the client is told once more to resume. Two
// changes of what it fetches, one right after the other, can leave it not fetching at
// all (kgo 1.22.2, source.loopFetch: a loop that finds its session canceled does not
// look for a new one); whatever makes it look again mends that.
const kickAfter = 100 * time.Millisecond

// kickDue is called with mu held.
func (c *claim) kickDue(now time.Time) bool {
	return !c.mu.kickAt.IsZero() && now.After(c.mu.kickAt)
}

// pendingBatches bounds what waits for a partition, in batches.
const pendingBatches = 2

// holdPoll is how long the poll loop waits for a full partition before it is paused,
// for the sake of the others.
const holdPoll = 200 * time.Millisecond

// room tells whether polling on makes sense for this partition, and whether it would
// take more than the partition should have.
func (c *claim) room() (has, full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	running := c.mu.state == StateRunning
	return running && len(c.mu.pending) < c.opts.MaxBatch,
		running && !c.mu.paused && len(c.mu.pending) >= pendingBatches*c.opts.MaxBatch
}
