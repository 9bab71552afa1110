package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
	"kudos/stream/store"
)

// viewPartition is the Worker of one partition of a View, and its only writer.
type viewPartition struct {
	view  *View
	of    Assignment // with the log and the partition count as of the start
	store *store.Store
	copy  Copy
	cl    kafka.Client // while it is open

	held []*kgo.Record // pending: they wait for the rest of their transaction, or for the end
	// gap: records may be missing before or between those held, because compaction has removed them. Their keys have
	// later records, below end, so the view is not right before it has all of those.
	gap   bool
	end   int64
	fresh bool  // it is being filled from the log's start: no record can be missing that deletes what is here
	lost  error // why the store must be rebuilt: its log was truncated

	// life is the lifecycle lock. Readers hold it while they read. The worker takes it to set ready, and clears ready
	// before it opens, empties or closes the store.
	life   sync.RWMutex
	ready  bool
	reason error // why it is not ready, after a failure

	// snap is the snapshot lock. Readers hold it while they pin what they read, the worker while it writes.
	snap sync.RWMutex

	behind atomic.Int64 // offsets to the end of the log, while it catches up; -1: not known
}

// errGiant means that a transaction's rest must be read by catching up, which ends where every transaction is complete.
var errGiant = errors.New("a transaction is too large to be held until it is complete")

func newViewPartition(v *View, a Assignment) *viewPartition {
	p := &viewPartition{view: v, of: a, store: v.opts.Stores.New(a.Topic, a.Partition), copy: v.opts.Copy(a.Partition)}
	p.behind.Store(-1)
	return p
}

// Fence does nothing: only this process writes its view.
func (p *viewPartition) Fence(context.Context) error { return nil }

// Open reads to the last stable offset. A readable partition stays so, unless its store must be reopened or rebuilt.
func (p *viewPartition) Open(ctx context.Context) (kafka.Position, error) {
	cl, err := p.view.opts.Clients.Connect(p.view.log)
	if err != nil {
		return kafka.Position{}, err
	}
	p.cl = cl
	p.held, p.gap, p.end = nil, false, 0
	if p.lost != nil {
		p.store.Distrust(p.lost)
		p.lost = nil
	}
	recreated := false
	next, err := p.store.CatchUp(ctx, p.cl, store.Hooks{
		Alone: func() { p.shut(nil) },
		Begin: func() error {
			_, has := p.store.Offset()
			p.fresh = !has
			if recreated = !p.ready; recreated {
				return p.copy.Open(p.store)
			}
			return nil
		},
		Progress: func(next, end int64) {
			p.behind.Store(max(0, end-next))
			p.of.Opening(next, end)
		},
		Apply: func(f kafka.LogChunk) error { return p.take(f.Records, f.Next, f.End, true) },
	})
	if err != nil {
		return kafka.Position{}, err
	}
	p.life.Lock()
	p.ready, p.reason, p.fresh = true, nil, false
	p.life.Unlock()
	if recreated {
		p.copy.Published(true)
	}
	return kafka.Position{Offset: next, Epoch: -1}, nil
}

// Process applies the complete transactions of the batch.
func (p *viewPartition) Process(ctx context.Context, b *Batch) error {
	if err := p.store.AwaitWritable(); err != nil {
		return err
	}
	if len(b.Records) == 0 {
		if p.gap && b.Reached.Offset >= p.end { // only control records were left
			return p.take(nil, b.Reached.Offset, b.End, false)
		}
		return nil
	}
	// There may be partitions that the view does not follow.
	if c, ok := p.copy.(PartitionsOf); ok && c.PartitionsOf(b.Records) > p.of.Partitions {
		if err := sameTopic(ctx, p.cl, b.Topic, p.of.Log, p.of.Partitions); err != nil {
			return err
		}
	}
	return p.take(b.Records, b.Next.Offset, b.End, b.Gap)
}

// Failed records why. A store that is ahead of its truncated log, or may miss deletions, is rebuilt.
func (p *viewPartition) Failed(err error) {
	if logWentBack(err) || errors.Is(err, errDeletions) {
		p.lost = err
	}
	p.life.Lock()
	defer p.life.Unlock()
	p.reason = err
}

// Close leaves the store open for readers.
func (p *viewPartition) Close() {
	if p.cl != nil {
		p.cl.Close()
		p.cl = nil
	}
}

// Leave closes the store.
func (p *viewPartition) Leave() {
	p.shut(nil)
	store.Leave(p.store)
}

// logWentBack reports whether an unclean election truncated the log, perhaps below the store; it may have regrown.
func logWentBack(err error) bool {
	return errors.As(err, new(*kgo.ErrDataLoss)) || errors.Is(err, kerr.OffsetOutOfRange)
}

// PartitionsOf is an optional method of a Copy: it returns the partition count that the topic has or will have,
// according to the next records. Data may move to added partitions, and must not be missing from the view in between.
type PartitionsOf interface {
	PartitionsOf(records []*kgo.Record) int32
}

// MissesDeletions is an optional method of a Copy: it reports whether records come after deletions that compaction may
// have removed together with what they deleted, before the view read them.
type MissesDeletions interface {
	MissesDeletions(records []*kgo.Record) bool
}

var errDeletions = errors.New("posts have moved to other partitions since the view last read its log, which may have " +
	"lost their deletions: it starts over")

// take applies the complete transactions of the held records and of these, which end before next. If there was a gap,
// it applies all up to the end at that time at once.
func (p *viewPartition) take(records []*kgo.Record, next, end int64, gap bool) error {
	if gap {
		p.gap, p.end = true, max(p.end, end)
	}
	p.held = append(p.held, records...)
	if c, ok := p.copy.(MissesDeletions); ok && p.gap && !p.fresh && c.MissesDeletions(p.held) {
		p.shut(errDeletions)
		return errDeletions
	}
	whole := len(p.held)
	if p.ready {
		if whole = p.copy.Whole(p.held); p.gap && next < p.end {
			whole = 0
		}
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
		// A stalled partition must not look up to date while its log continues.
		p.shut(err)
		return fmt.Errorf("view of %s/%d: %w", p.of.Topic, p.of.Partition, err)
	}
	p.held = append([]*kgo.Record(nil), p.held[whole:]...) // a copy: the old array would keep all of them
	p.gap = p.gap && next < p.end
	if giant {
		return fmt.Errorf("%w: %w", errReopen, errGiant)
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
	// Readers wait for the write, but not for the compactions that AwaitWritable waits for.
	if err := p.store.AwaitWritable(); err != nil {
		w.Discard()
		return err
	}
	p.snap.Lock()
	defer p.snap.Unlock()
	if n := len(records); n > 0 {
		w.SetEpoch(records[n-1].LeaderEpoch)
	}
	if err := w.Commit(covered); err != nil {
		return err
	}
	p.copy.Applied()
	return nil
}

// shut waits for the readers to leave and admits no others.
func (p *viewPartition) shut(reason error) {
	p.life.Lock()
	defer p.life.Unlock()
	p.ready, p.reason = false, reason
}

func (p *viewPartition) read(pin func(*store.Store, Copy) error, use func() error) error {
	p.life.RLock()
	defer p.life.RUnlock()
	if !p.ready {
		return p.notReady(p.reason)
	}
	err := p.use(pin, use)
	if err != nil {
		if why := store.Unusable(p.store); why != nil { // the next batch or tick reopens it
			return p.notReady(why)
		}
	}
	return err
}

func (p *viewPartition) notReady(why error) error {
	e := &ViewNotReadyError{Topic: p.of.Topic, Partition: p.of.Partition, Behind: p.behind.Load()}
	if why != nil {
		e.Reason, e.Action = why.Error(), actionOf(why)
	}
	return e
}

func (p *viewPartition) use(pin func(*store.Store, Copy) error, use func() error) error {
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
