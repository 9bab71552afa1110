package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
	"kudos/stream/store"
)

// viewPartition is one partition of a View. Its goroutine is run; everybody else reads.
type viewPartition struct {
	view      *View
	partition int32
	of        int32 // how many partitions the topic had when this began
	store     *store.Store
	copy      Copy

	next int64         // the offset to read on from
	held []*kgo.Record // before it, not applied: they wait for the rest of their transaction
	lost error         // why the copy is to be made anew: the log does not have all that it has

	// life is held by readers for as long as they read, and by run where the store is
	// opened, emptied or closed, for which ready is false first.
	life   sync.RWMutex
	ready  bool
	reason error // why it is not, if something went wrong

	// snap is held by readers while they pin what they read, and by run while it writes.
	snap sync.RWMutex

	behind atomic.Int64 // offsets to the end of the log, as of the last fetch; -1: not known
}

// errRelaid tells that the topic has another number of partitions now.
var errRelaid = errors.New("the number of partitions has changed")

// errGiant tells that the rest of a transaction is to be read by catching up, which ends
// where all transactions are whole.
var errGiant = errors.New("a transaction is too large to be held until it is whole")

func newViewPartition(v *View, partition, of int32, store *store.Store) *viewPartition {
	p := &viewPartition{view: v, partition: partition, of: of, store: store, copy: v.opts.Copy(partition)}
	p.behind.Store(-1)
	return p
}

// run follows the partition until ctx ends.
func (p *viewPartition) run(ctx context.Context) (err error) {
	defer func() {
		p.shut(nil)
		err = errors.Join(err, p.store.Close())
	}()
	retry := viewRetryMin
	err = p.store.Open() // if it fails, follow tries again; the other partitions go on
	for {
		started := time.Now()
		if err == nil {
			err = p.follow(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errRelaid) {
			return err
		}
		p.view.log.Warn("local copy: reading on with a new client", "partition", p.partition, "error", err)
		if logWentBack(err) {
			p.lost = err
		}
		p.life.Lock()
		p.reason = err
		p.life.Unlock()
		if time.Since(started) > viewRetryMax {
			retry = viewRetryMin
		}
		if !pause(ctx, &retry) {
			return nil
		}
		err = nil
	}
}

// logWentBack tells that the log lost what is in the copy, or may have: an unclean
// election cut it off, and by now it may be as long as before.
func logWentBack(err error) bool {
	var loss *kgo.ErrDataLoss
	return errors.As(err, &loss) || errors.Is(err, kerr.OffsetOutOfRange)
}

// follow catches up, and then applies what comes until something fails.
func (p *viewPartition) follow(ctx context.Context) error {
	cl, err := p.view.opts.Kafka.NewClient(p.view.log,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// What is gone is to be seen and not skipped: the copy is then made anew.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxPartitionBytes(viewFetchBytes),
		kgo.FetchMaxBytes(viewFetchBytes),
	)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := p.catchUp(ctx, cl); err != nil {
		return err
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{p.view.opts.Topic: {p.partition: kgo.NewOffset().At(p.next)}})
	for checked := time.Now(); ; {
		pollCtx, cancel := context.WithTimeout(ctx, viewPoll)
		fetches := cl.PollRecords(pollCtx, p.view.pollRecords)
		cancel()
		if err := pollError(ctx, fetches); err != nil {
			return fmt.Errorf("following %s/%d: %w", p.view.opts.Topic, p.partition, err)
		}
		if err := p.store.Trouble(); err != nil {
			return err
		}
		records := fetches.Records()
		if now := time.Now(); now.Sub(checked) >= viewCheck || p.speakOfMore(records) {
			if err := p.checkLog(ctx, cl); err != nil {
				return err
			}
			checked = now
		}
		if len(records) == 0 {
			continue
		}
		if err := p.take(records, records[len(records)-1].Offset+1); err != nil {
			return err
		}
	}
}

// PartitionsOf may be a Copy's, too: how many partitions the topic has, or is about to have, by records that follow
// those applied last. What was in one partition may be in one that was added then, and is not to be missed in between.
type PartitionsOf interface {
	PartitionsOf(records []*kgo.Record) int32
}

// speakOfMore tells whether there may be partitions of which there is no copy.
func (p *viewPartition) speakOfMore(records []*kgo.Record) bool {
	c, ok := p.copy.(PartitionsOf)
	return ok && len(records) > 0 && c.PartitionsOf(records) > p.of
}

// checkLog looks whether the topic is still the one that is followed. The client itself
// notices another one late, and by chance.
func (p *viewPartition) checkLog(ctx context.Context, cl *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, viewPoll)
	defer cancel()
	topics, err := kafka.LookUpTopics(ctx, cl, p.view.opts.Topic)
	if err != nil {
		return nil // Kafka is away, or the topic: the copy stays what it is
	}
	if info := topics.ByName[p.view.opts.Topic]; info.ID != p.store.LogID().TopicID || info.Partitions != p.of {
		return fmt.Errorf("following %s/%d: %w", p.view.opts.Topic, p.partition, kafka.ErrRecreated)
	}
	return nil
}

// pollError is what a poll met, but for the end of its time.
func pollError(ctx context.Context, fetches kgo.Fetches) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, e := range fetches.Errors() {
		if !errors.Is(e.Err, context.DeadlineExceeded) {
			return e.Err
		}
	}
	return nil
}

// catchUp reads to the last stable offset. A copy that was ready stays so meanwhile, if
// it can be gone on with.
func (p *viewPartition) catchUp(ctx context.Context, cl *kgo.Client) error {
	topic := p.view.opts.Topic
	topics, err := kafka.LookUpTopics(ctx, cl, topic)
	if err != nil {
		return err
	}
	if n := topics.ByName[topic].Partitions; n != p.of {
		return fmt.Errorf("%w: %s has %d, and had %d", errRelaid, topic, n, p.of)
	}
	p.held = nil
	if p.lost != nil {
		p.store.Distrust(p.lost)
		p.lost = nil
	}
	next, err := p.store.Resume(ctx, cl, topic, p.partition, func() { p.shut(nil) })
	if err != nil {
		return err
	}
	p.next = next
	anew := !p.ready
	if anew {
		if err := p.copy.Open(p.store); err != nil {
			return err
		}
	}
	if err := p.store.ReadOn(ctx, cl, topic, p.partition, next, func(f kafka.LogChunk) error {
		p.behind.Store(max(0, f.End-f.Next))
		return p.take(f.Records, f.Next)
	}); err != nil {
		return err
	}
	if p.next > next {
		// Nobody waits for it. What is on disk is quicker to read, and not lost by a crash.
		if err := p.store.FlushSoon(); err != nil {
			return err
		}
	}
	p.life.Lock()
	p.ready, p.reason = true, nil
	p.life.Unlock()
	if anew {
		p.copy.Published(true)
	}
	return nil
}

// take applies what is whole of the records, which end before next, and of those that
// are held.
func (p *viewPartition) take(records []*kgo.Record, next int64) error {
	p.held, p.next = append(p.held, records...), next
	whole := len(p.held)
	if p.ready {
		whole = p.copy.Whole(p.held)
	}
	giant := len(p.held)-whole > p.view.maxHeld
	if giant {
		p.shut(errGiant)
		whole = len(p.held)
	}
	covered := next - 1
	if whole < len(p.held) {
		covered = p.held[whole].Offset - 1
	}
	if err := p.apply(p.held[:whole], covered); err != nil {
		// A copy that stands still while its log goes on is not shown as if it were all.
		p.shut(err)
		return fmt.Errorf("local copy of %s/%d: %w", p.view.opts.Topic, p.partition, err)
	}
	p.held = append([]*kgo.Record(nil), p.held[whole:]...) // not the array, which would keep all
	if giant {
		return errGiant
	}
	if whole > 0 && p.ready {
		p.copy.Published(false)
	}
	return nil
}

func (p *viewPartition) apply(records []*kgo.Record, covered int64) error {
	w := p.store.NewWrite()
	if err := p.copy.Apply(p.store, w, records); err != nil {
		w.Discard()
		return err
	}
	// Readers wait for the write, but not for what that would wait for.
	if err := p.store.WaitForRoom(); err != nil {
		w.Discard()
		return err
	}
	p.snap.Lock()
	defer p.snap.Unlock()
	if err := w.Commit(covered); err != nil {
		return err
	}
	p.copy.Applied()
	return nil
}

// shut waits for the readers to leave, and lets no other in.
func (p *viewPartition) shut(reason error) {
	p.life.Lock()
	defer p.life.Unlock()
	p.ready, p.reason = false, reason
}

func (p *viewPartition) read(pin func(*store.Store, Copy) error, use func() error) error {
	p.life.RLock()
	defer p.life.RUnlock()
	if !p.ready {
		e := &ViewNotReadyError{Topic: p.view.opts.Topic, Partition: p.partition, Behind: p.behind.Load()}
		if p.reason != nil {
			e.Reason, e.Remedy = p.reason.Error(), remedyOf(p.reason)
		}
		return e
	}
	if pin != nil {
		p.snap.RLock()
		err := pin(p.store, p.copy)
		p.snap.RUnlock()
		if err != nil {
			return err
		}
	}
	if use != nil {
		return use()
	}
	return nil
}
