package stream

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
)

// Worker does a role's work on one assigned partition. All its methods are called
// from one goroutine at a time, in this order:
//
//	Fence → Open → Process … → Close
//
// After an error of Process (or a park that is looked at again) it starts over with
// Close and Fence. Fence and Open together must establish everything anew.
type Worker interface {
	// Fence takes the partition over from an earlier owner, before anything of it
	// is read.
	Fence(ctx context.Context) error
	// Open brings the state up to date and says where to go on.
	Open(ctx context.Context) (kafka.Position, error)
	// Process works a batch off. When it returns nil, b.Next is the position. A
	// batch without records is a tick.
	Process(ctx context.Context, b *Batch) error
	// Close gives up what Fence and Open took. It may be called at any time.
	Close()
}

// Assignment is one partition of one session, for which a Worker is made.
type Assignment struct {
	Topic     string
	Partition int32
	Member    kafka.Member
}

// State of a claim, in words for people.
const (
	StateStarting = "starting" // waits for recovery, or is being opened
	StateRunning  = "running"
	StateParked   = "parked" // waits for its cause to be mended
	StateFenced   = "fenced" // another process owns it; waits for a new assignment
)

// claim is one partition of a session: it collects what the poll loop brings, hands
// goka one batch at a time, and keeps the partition's state when something fails.
// It is goka's sarama.ConsumerGroupClaim.
//
//	poll loop ──push──► pending ──next──► goka ──process──► Worker
//	                       ▲                                  │
//	                       └────── position, seek ◄───────────┘
type claim struct {
	assignment Assignment
	worker     Worker
	opts       *ProcessorOptions
	log        *slog.Logger
	loop       pollLoop
	// verify refuses a position whose leader epoch tells that the log was truncated.
	verify func(context.Context, kafka.Position) error

	messages chan *sarama.ConsumerMessage // closed by feed
	changed  chan struct{}                // capacity 1: something for feed to look at

	mu struct {
		sync.Mutex
		state    string
		trouble  Trouble
		since    time.Time
		retryAt  time.Time
		failures int
		// doubt is the trouble of the last park, until a batch or a tick has gone well
		// since: what only Process finds must not look mended by opening.
		doubt Trouble

		position kafka.Position
		// seek is set from opening until the poll loop has moved the client to the
		// position: what arrives before is dropped.
		seek bool
		// kickAt is when the client is reminded of the partition after that; zero: not.
		kickAt time.Time
		paused bool // what the poll loop last told the client
		// fullSince is when pending reached its bound; zero below that.
		fullSince time.Time
		pending   []*kgo.Record
		// handed begins with the records in hand; spare is the memory that those before them
		// were in.
		handed, spare []*kgo.Record
		// fetched is behind the last record that arrived, control records included: one
		// of those may be of a later leader epoch than the records before it. lso is the
		// end of the log as of then.
		fetched kafka.Position
		lso     int64

		current  *Batch // with goka
		lastDone time.Time
		// movedAt is when the position moved last, or a tick found nothing before it.
		movedAt time.Time
	}
}

// pollLoop is what a claim tells the poll loop, the only one to steer the client.
type pollLoop interface {
	wake()      // come round and look at flow
	roomAgain() // polling makes sense again
	rejoin()    // ask the group for a new assignment
}

func newClaim(a Assignment, w Worker, opts *ProcessorOptions, log *slog.Logger, loop pollLoop, verify func(context.Context, kafka.Position) error) *claim {
	c := &claim{
		assignment: a, worker: w, opts: opts, loop: loop, verify: verify,
		log:      log.With("topic", a.Topic, "partition", a.Partition),
		messages: make(chan *sarama.ConsumerMessage),
		changed:  make(chan struct{}, 1),
	}
	c.mu.state, c.mu.since, c.mu.movedAt = StateStarting, time.Now(), time.Now()
	c.mu.position = kafka.Position{Offset: -1, Epoch: -1}
	return c
}

func (c *claim) Topic() string                            { return c.assignment.Topic }
func (c *claim) Partition() int32                         { return c.assignment.Partition }
func (c *claim) Messages() <-chan *sarama.ConsumerMessage { return c.messages }

func (c *claim) InitialOffset() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.position.Offset
}

func (c *claim) HighWaterMarkOffset() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.lso
}

// push takes what a poll brought.
func (c *claim) push(p *kgo.FetchPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.seek || c.mu.state != StateRunning {
		return
	}
	if p.Err != nil {
		c.parkLocked(fetchError(p.Err))
		return
	}
	if len(p.Records) > 0 && p.Records[0].Offset < c.mu.fetched.Offset {
		c.parkLocked(fmt.Errorf("offset %d came after offset %d had been read", p.Records[0].Offset, c.mu.fetched.Offset-1))
		return
	}
	c.mu.lso = max(c.mu.lso, p.LastStableOffset)
	for _, rec := range p.Records {
		c.mu.fetched = kafka.Position{Offset: rec.Offset + 1, Epoch: rec.LeaderEpoch}
		if !rec.Attrs.IsControl() {
			c.mu.pending = append(c.mu.pending, rec)
		}
	}
	c.notify()
}

// notify has feed look again.
func (c *claim) notify() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// feed hands batches to goka until the session ends.
func (c *claim) feed(ctx context.Context) {
	defer close(c.messages)
	timer := time.NewTicker(min(c.opts.TickInterval, c.opts.ParkInterval) / 4)
	defer timer.Stop()
	for {
		if b := c.next(time.Now()); b != nil {
			select {
			case c.messages <- c.message(b):
			case <-ctx.Done():
				return
			}
			continue
		}
		select {
		case <-c.changed:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// next returns the batch to hand over now, or nil: one is under way, or there is
// nothing to do yet.
func (c *claim) next(now time.Time) *Batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.current != nil {
		return nil
	}
	if c.mu.seek || c.kickDue(now) {
		c.loop.wake() // the client was not ready for it at the first try
	}
	c.mu.handed = nil // of a batch that failed
	b := &Batch{Topic: c.assignment.Topic, Partition: c.assignment.Partition, Next: c.mu.position}
	switch {
	case c.mu.state == StateFenced:
		if now.After(c.mu.retryAt) {
			c.mu.retryAt = now.Add(c.rejoinAfter())
			c.loop.rejoin()
		}
		return nil
	case c.mu.state == StateParked:
		if now.Before(c.mu.retryAt) {
			return nil
		}
	case len(c.mu.pending) > 0:
		n := min(len(c.mu.pending), c.opts.MaxBatch)
		c.mu.handed = c.mu.pending
		b.Records = c.mu.handed[:n:n]
		c.mu.pending = append(c.mu.spare, c.mu.handed[n:]...)
		c.mu.spare = nil
		if c.mu.paused {
			c.loop.wake() // it may be time to resume
		} else {
			c.loop.roomAgain()
		}
		last := b.Records[n-1]
		b.Next = kafka.Position{Offset: last.Offset + 1, Epoch: last.LeaderEpoch}
		if len(c.mu.pending) == 0 {
			// Over the control records behind it, too: they may be all that is left
			// when retention has deleted what is before.
			b.Next = c.mu.fetched
		}
	case now.Sub(c.mu.lastDone) < c.opts.TickInterval:
		return nil
	}
	c.mu.current = b
	return b
}

// message dresses a batch up for goka: goka wants bytes, so the message carries only
// the partition, by which the codec finds the batch.
func (c *claim) message(b *Batch) *sarama.ConsumerMessage {
	return &sarama.ConsumerMessage{
		Topic:     b.Topic,
		Partition: b.Partition,
		Offset:    b.Next.Offset - 1,
		Value:     binary.BigEndian.AppendUint32(nil, uint32(b.Partition)),
		Timestamp: time.Now(),
	}
}

// done is goka's mark: the batch has been worked off, for better or worse.
func (c *claim) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.current = nil
	c.mu.lastDone = time.Now()
	c.notify()
}

// settled returns the offset to show as the group's committed offset: the position,
// or what follows the control records behind it when nothing is left to do.
func (c *claim) settled() kafka.Position {
	c.mu.Lock()
	defer c.mu.Unlock()
	idle := c.mu.current == nil && len(c.mu.pending) == 0 && c.mu.state == StateRunning && !c.mu.seek
	if idle && c.mu.fetched.Offset > c.mu.position.Offset {
		return c.mu.fetched
	}
	return c.mu.position
}
