package stream

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
)

// queue is what was fetched of a partition and is not worked off yet. The poll loop fills it, the partition's goroutine
// takes from it; and it tells the loop what to pause, to resume and to move, so that what waits stays bounded.
//
//	poll loop ──push──► pending ──take──► Worker
//	     ▲                                  │
//	     └── flow: pause, resume, seek ◄────┘ open, close
type queue struct {
	loop    pollLoop
	changed chan struct{} // capacity 1: something to look at
	paused  atomic.Bool   // what the poll loop last told the client

	// Of the poll loop, while it steers.
	fullSince time.Time // when pending reached its bound; zero below that
	kickAt    time.Time // when the client is reminded of the partition after a seek; zero: not

	// Of the partition's goroutine: what begins with the records in hand, and the memory that those before were in.
	handed, spare []*kgo.Record

	mu struct {
		sync.Mutex
		wanted  bool // the partition is running
		pending []*kgo.Record
		// seek is set from opening until the poll loop has moved the client to the
		// position: what arrives before is dropped.
		seek *kafka.Position
		// fetched is behind the last record that arrived, control records included: one
		// of those may be of a later leader epoch than the records before it. lso is the
		// end of the log as of then.
		fetched kafka.Position
		lso     int64
		err     error // what a fetch met: nothing is wanted any more
	}
}

// pollLoop is what a partition tells the poll loop, the only one to steer the client.
type pollLoop interface {
	wake()      // come round and look at flow
	roomAgain() // polling makes sense again
	rejoin()    // ask the group for a new assignment
	// startOver ends the session, for all partitions.
	startOver(why error)
}

// newQueue makes the queue of a partition that is paused.
func newQueue(loop pollLoop) *queue {
	q := &queue{loop: loop, changed: make(chan struct{}, 1)}
	q.paused.Store(true)
	return q
}

// open has the client go on at a position.
func (q *queue) open(at kafka.Position) {
	q.handed = nil // of a batch that failed
	q.mu.Lock()
	q.mu.wanted, q.mu.seek, q.mu.fetched, q.mu.pending, q.mu.err = true, &at, at, nil, nil
	q.mu.Unlock()
	q.loop.wake()
}

// close drops what waits, and has the client fetch nothing.
func (q *queue) close() {
	q.handed = nil
	q.mu.Lock()
	q.mu.wanted, q.mu.seek, q.mu.pending, q.mu.err = false, nil, nil, nil
	q.mu.Unlock()
	q.loop.wake()
}

// push takes what a poll brought.
func (q *queue) push(p *kgo.FetchPartition) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.mu.seek != nil || !q.mu.wanted || q.mu.err != nil:
		return
	case p.Err != nil:
		q.mu.err = fetchError(p.Err)
	case len(p.Records) > 0 && p.Records[0].Offset < q.mu.fetched.Offset:
		q.mu.err = fmt.Errorf("offset %d came after offset %d had been read", p.Records[0].Offset, q.mu.fetched.Offset-1)
	}
	if q.mu.err != nil {
		q.mu.pending = nil
		q.loop.wake()
	} else {
		q.mu.lso = max(q.mu.lso, p.LastStableOffset)
		q.append(p.Records)
	}
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// append is called with mu held.
func (q *queue) append(records []*kgo.Record) {
	for _, rec := range records {
		q.mu.fetched = kafka.Position{Offset: rec.Offset + 1, Epoch: rec.LeaderEpoch}
		if !rec.Attrs.IsControl() {
			q.mu.pending = append(q.mu.pending, rec)
		}
	}
}

// take returns the records that follow, up to n, and the position after them; none: there is nothing yet.
func (q *queue) take(n int) (records []*kgo.Record, next kafka.Position, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.seek != nil {
		q.loop.wake() // the client was not ready for it at the first try
	}
	n = min(n, len(q.mu.pending))
	if q.mu.err != nil || n == 0 {
		return nil, next, q.mu.err
	}
	q.handed = q.mu.pending
	records = q.handed[:n:n]
	q.mu.pending = append(q.spare, q.handed[n:]...)
	q.spare = nil
	if q.paused.Load() {
		q.loop.wake() // it may be time to resume
	} else {
		q.loop.roomAgain()
	}
	if len(q.mu.pending) == 0 {
		// Over the control records behind it, too: they may be all that is left
		// when retention has deleted what is before.
		return records, q.mu.fetched, nil
	}
	last := records[n-1]
	return records, kafka.Position{Offset: last.Offset + 1, Epoch: last.LeaderEpoch}, nil
}

// reuse keeps the memory of a batch that nobody has any more.
func (q *queue) reuse() {
	clear(q.handed) // or the records would be kept, too
	if q.handed != nil {
		q.handed, q.spare = nil, q.handed[:0]
	}
}

// lag is how many records wait or are still to be fetched.
func (q *queue) lag() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int64(len(q.mu.pending)) + max(0, q.mu.lso-q.mu.fetched.Offset)
}

// settled returns what is behind all that was fetched, if nothing of it waits.
func (q *queue) settled() (at kafka.Position, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.fetched, q.mu.wanted && q.mu.seek == nil && len(q.mu.pending) == 0
}

// end is the end of the log, as far as it is known.
func (q *queue) end() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.lso
}

// endsAt notes where the log ended a moment ago, which is sooner than was known before the
// question if records went missing.
func (q *queue) endsAt(end, before int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.lso != before { // a fetch has told more since
		end = max(end, q.mu.lso)
	}
	q.mu.lso = end
}

// flow says what the poll loop has to tell the client: whether the partition has to
// be paused now, and the position to move to, if any. quota is how many records may wait.
func (q *queue) flow(now time.Time, quota int) (paused, changed bool, seek *kafka.Position) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// What is pending is bounded. But pausing has the client throw away what it has
	// fetched, and wait for a fetch of the others before this one is resumed: so it
	// comes late (see waitForRoom), and resuming only at half of it.
	full := len(q.mu.pending) >= quota
	switch {
	case !full:
		q.fullSince = time.Time{}
	case q.fullSince.IsZero():
		q.fullSince = now
	}
	before := q.paused.Load()
	switch {
	case !q.mu.wanted || q.mu.err != nil:
		paused = true
	case before:
		paused = len(q.mu.pending) >= quota/2
	default:
		paused = full && now.Sub(q.fullSince) >= holdPoll
	}
	changed = paused != before
	if !q.kickAt.IsZero() && !now.Before(q.kickAt) {
		changed, q.kickAt = true, time.Time{}
	}
	q.paused.Store(paused)
	if q.mu.wanted && q.mu.err == nil {
		seek = q.mu.seek
	}
	return paused, changed, seek
}

// sought tells that the client stands at a position that flow asked for.
func (q *queue) sought(at kafka.Position) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.seek != nil && *q.mu.seek == at {
		q.mu.seek, q.kickAt = nil, time.Now().Add(kickAfter)
		time.AfterFunc(kickAfter, q.loop.wake)
	}
}

// kickAfter is how long after a seek the client is told once more to resume. Two
// changes of what it fetches, one right after the other, can leave it not fetching at
// all (kgo 1.22.2, source.loopFetch: a loop that finds its session canceled does not
// look for a new one); whatever makes it look again mends that.
const kickAfter = 100 * time.Millisecond

// pendingBatches bounds what waits for all partitions of a process together, in batches.
const pendingBatches = 2

// holdPoll is how long the poll loop waits for a full partition before it is paused,
// for the sake of the others.
const holdPoll = 200 * time.Millisecond

// waiting returns how many records wait.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.pending)
}

// room tells whether polling on makes sense for this partition, and whether it would
// take more than the partition should have.
func (q *queue) room(quota int) (has, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	running := q.mu.wanted && q.mu.err == nil
	return running && len(q.mu.pending) < quota/2,
		running && !q.paused.Load() && len(q.mu.pending) >= quota
}
