package stream

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
)

// queue holds the records of a partition that were fetched and not processed yet. The poll loop enqueues them and the
// partition's goroutine takes them. Its flow control keeps the number of pending records bounded.
//
//	poll loop ──enqueue──► pending ──take──► Worker
//	     ▲                                     │
//	     └───── flow: pause, resume, seek ◄────┘ open, close
type queue struct {
	loop    pollLoop
	changed chan struct{} // capacity 1: wakes the partition's goroutine
	paused  atomic.Bool   // as the client has it

	// Used by the poll loop.
	fullSince time.Time // when pending reached its bound; zero below it
	nudgeAt   time.Time // when to resume the partition once more after a seek; zero: never
	nudgeIn   time.Duration

	// Used by the partition's goroutine: the records in flight and those after them, and the slice to reuse.
	handed, spare []*kgo.Record

	mu struct {
		sync.Mutex
		wanted  bool // the partition is open
		pending []*kgo.Record
		// seek is set until the client is at the position; records that arrive before are dropped.
		seek *kafka.Position
		// fetched is the position after the last record that arrived, control records included: their
		// leader epoch may be later than that of the records before them. lso is the last stable offset.
		fetched kafka.Position
		gap     int64 // the offset of the last record that does not follow the one before it
		lso     int64
		err     error // of a fetch; later records are dropped
	}
}

// pollLoop gets the requests of a partition. Only the poll loop pauses, resumes and seeks.
type pollLoop interface {
	wake()               // call flow soon
	capacityFreed()      // poll again
	rejoin()             // ask the group for a new assignment
	startOver(why error) // end the session, for all partitions
}

func newQueue(loop pollLoop) *queue {
	q := &queue{loop: loop, changed: make(chan struct{}, 1)}
	q.paused.Store(true)
	return q
}

func (q *queue) open(at kafka.Position) {
	q.handed = nil // of a batch that failed
	q.mu.Lock()
	q.mu.wanted, q.mu.seek, q.mu.fetched, q.mu.pending, q.mu.err = true, &at, at, nil, nil
	q.mu.gap = -1
	q.mu.Unlock()
	q.loop.wake()
}

func (q *queue) close() {
	q.handed = nil
	q.mu.Lock()
	q.mu.wanted, q.mu.seek, q.mu.pending, q.mu.err = false, nil, nil, nil
	q.mu.Unlock()
	q.loop.wake()
}

func (q *queue) enqueue(p *kgo.FetchPartition) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.mu.seek != nil || !q.mu.wanted || q.mu.err != nil:
		return
	case p.Err != nil:
		q.mu.err = fetchError(p.Err)
	case len(p.Records) > 0 && p.Records[0].Offset < q.mu.fetched.Offset:
		q.mu.err = fmt.Errorf("offset %d arrived after offset %d had been read", p.Records[0].Offset,
			q.mu.fetched.Offset-1)
	}
	if q.mu.err != nil {
		q.mu.pending = nil
		q.loop.wake()
	} else {
		q.mu.lso = max(q.mu.lso, p.LastStableOffset)
		q.append(p.Records)
	}
	wakeUp(q.changed)
}

// append is called with mu held.
func (q *queue) append(records []*kgo.Record) {
	for _, rec := range records {
		if rec.Offset > q.mu.fetched.Offset {
			q.mu.gap = rec.Offset
		}
		q.mu.fetched = kafka.Position{Offset: rec.Offset + 1, Epoch: rec.LeaderEpoch}
		if !rec.Attrs.IsControl() {
			q.mu.pending = append(q.mu.pending, rec)
		}
	}
}

func (q *queue) take(n int) (records []*kgo.Record, next kafka.Position, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.seek != nil {
		q.loop.wake() // the client did not consume the partition yet
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
		q.loop.wake() // to resume it, perhaps
	} else {
		q.loop.capacityFreed()
	}
	if len(q.mu.pending) == 0 {
		// After the control records too: retention may delete all records before them.
		return records, q.mu.fetched, nil
	}
	last := records[n-1]
	return records, kafka.Position{Offset: last.Offset + 1, Epoch: last.LeaderEpoch}, nil
}

// reuse keeps the slice of a processed batch.
func (q *queue) reuse() {
	clear(q.handed) // so that the records can be collected
	if q.handed != nil {
		q.handed, q.spare = nil, q.handed[:0]
	}
}

func (q *queue) lag() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int64(len(q.mu.pending)) + max(0, q.mu.lso-q.mu.fetched.Offset)
}

// settled returns the position after everything fetched, if no record is pending.
func (q *queue) settled() (at kafka.Position, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.fetched, q.mu.wanted && q.mu.seek == nil && len(q.mu.pending) == 0
}

// gapFrom reports whether a gap may precede one of the records from an offset on.
func (q *queue) gapFrom(offset int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.gap >= offset
}

func (q *queue) end() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.lso
}

// endsAt sets the end of the log, from a request sent when the known end was before. An unclean election may lower it.
func (q *queue) endsAt(end, before int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.lso != before { // a fetch returned since
		end = max(end, q.mu.lso)
	}
	q.mu.lso = end
}

// flow returns whether the client has to pause the partition, whether that or the fetch position may have changed, and
// the position to seek to, if any. quota is the number of records that may be pending.
func (q *queue) flow(now time.Time, quota int) (paused, changed bool, seek *kafka.Position) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// Pausing discards the client's buffered fetches, and a resumed partition waits for the fetch in flight. So a
	// full partition is paused late (see waitForCapacity), and resumed at half of its quota.
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
	if !q.nudgeAt.IsZero() && !now.Before(q.nudgeAt) {
		changed = true
		q.nudge(now, 2*q.nudgeIn)
	}
	q.paused.Store(paused)
	if q.mu.wanted && q.mu.err == nil {
		seek = q.mu.seek
	}
	return paused, changed, seek
}

// seekConfirmed records that the client is at a position that flow returned.
func (q *queue) seekConfirmed(at kafka.Position) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.seek != nil && *q.mu.seek == at {
		q.mu.seek = nil
		q.nudge(time.Now(), nudgeAfter)
	}
}

func (q *queue) nudge(now time.Time, in time.Duration) {
	q.nudgeIn, q.nudgeAt = in, time.Time{}
	if in <= lastNudge {
		q.nudgeAt = now.Add(in)
		time.AfterFunc(in, q.loop.wake)
	}
}

// nudgeAfter is how long after a seek the client is told to resume once more. Two changes of what it fetches in quick
// succession can stop it from fetching (kgo 1.22.3, source.loopFetch: a loop that finds its session canceled does not
// look for a new one); any later change makes it look again. The seek takes effect after a request for metadata, which
// may be slow, so the client is told again, up to lastNudge.
const nudgeAfter, lastNudge = 100 * time.Millisecond, 3200 * time.Millisecond

const pendingBatches = 2 // bounds the pending records of all partitions of a session, in batches

// holdPoll is how long the poll loop waits for a full partition before it pauses it for the benefit of the others.
const holdPoll = 200 * time.Millisecond

func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.pending)
}

func (q *queue) capacity(quota int) (has, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	running := q.mu.wanted && q.mu.err == nil
	return running && len(q.mu.pending) < quota/2,
		running && !q.paused.Load() && len(q.mu.pending) >= quota
}
