package stream

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
)

// This file is a claim and the poll loop: how much may wait here, and what the loop has
// to tell the client so that it stays so.

// flow says what the poll loop has to tell the client: whether the partition has to
// be paused now, and the position to move to, if any. quota is how many records may wait.
func (c *claim) flow(now time.Time, quota int) (paused, changed bool, seek *kgo.EpochOffset) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// What is pending is bounded. But pausing has the client throw away what it has
	// fetched, and wait for a fetch of the others before this one is resumed: so it
	// comes late (see waitForRoom), and resuming only at half of it.
	full := len(c.mu.pending) >= quota
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
		paused = len(c.mu.pending) >= quota/2
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
	if c.mu.position == (kafka.Position{Offset: at.Offset, Epoch: at.Epoch}) {
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

// pendingBatches bounds what waits for all partitions of a process together, in batches.
const pendingBatches = 2

// quotas says how many records may wait for each partition: what the others leave of the
// bound, so that one hot post has all of it, but at least an equal part.
func (s *session) quotas(maxBatch int) map[int32]int {
	quotas, all := map[int32]int{}, 0
	for p, c := range s.claims {
		quotas[p] = c.waiting()
		all += quotas[p]
	}
	for p, own := range quotas {
		quotas[p] = pendingBatches * max(1, maxBatch/len(quotas), maxBatch-(all-own)/pendingBatches)
	}
	return quotas
}

// waiting returns how many records wait.
func (c *claim) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.pending)
}

// holdPoll is how long the poll loop waits for a full partition before it is paused,
// for the sake of the others.
const holdPoll = 200 * time.Millisecond

// room tells whether polling on makes sense for this partition, and whether it would
// take more than the partition should have.
func (c *claim) room(quota int) (has, full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	running := c.mu.state == StateRunning
	return running && len(c.mu.pending) < quota/2,
		running && !c.mu.paused && len(c.mu.pending) >= quota
}
