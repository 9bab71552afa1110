package stream

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/stream/kafka"
)

// Worker does a role's work on one partition. All its methods are called
// from one goroutine at a time, in this order:
//
//	Fence → Open → Process … → Close
//
// After an error it starts over with Fence. Fence and Open together must establish
// everything anew.
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

// Optional methods of a Worker: Failed is told of each error for which the partition is closed, before Close; Leave is
// called once, when the session is over.
type (
	failedWorker  interface{ Failed(err error) }
	leavingWorker interface{ Leave() }
)

// Assignment is one partition of one session, for which a Worker is made.
type Assignment struct {
	Topic     string
	Partition int32
	Member    kafka.Member // of a group
	// Log and Partitions, which the topic has, are told where there is no group.
	Log        kafka.LogID
	Partitions int32
	// Opening is told how far Open is, where that reads the partition itself: the next offset, and the end of the log.
	Opening func(next, end int64)
}

// State of a partition, in words for people.
const (
	StateStarting = "starting" // is being opened for the first time
	StateRunning  = "running"
	StateParked   = "parked" // waits for its cause to be mended
	StateFenced   = "fenced" // another process owns it; waits for a new assignment
)

// Partition follows one partition of a topic, step by step: it opens its worker, hands it one batch after the other, and
// decides what becomes of an error.
//
//	starting ─┐                                             ┌─► parked ─┐ after the park interval, or sooner
//	          ├─► open: fence, state, position ─► running ──┤           ├─► open …
//	parked  ──┘                             an error: close └─► fenced  │ until another assignment
//
// One goroutine calls Step and Wait; the poll loop steers and delivers beside it.
type Partition struct {
	assignment Assignment
	worker     Worker
	opts       *ProcessorOptions
	cl         kmsg.Requestor // is asked whether the log was truncated
	loop       pollLoop
	log        *slog.Logger
	queue      *queue

	failures int       // since a batch or a tick has gone well
	lastDone time.Time // when one was over
	retryAt  time.Time // when a parked or fenced partition is looked at again
	opened   chan struct{}
	first    sync.Once // closes opened, when the partition was opened for the first time, or could not be

	mu struct {
		sync.Mutex
		state   string
		trouble Trouble
		// doubt is the trouble of the last park, until a batch or a tick has gone well
		// since: what only Process finds must not look mended by opening.
		doubt    Trouble
		since    time.Time
		position kafka.Position
		// movedAt is when the position moved last, or a tick found nothing before it.
		movedAt time.Time
		inHand  int // records with the worker
	}
}

// NewPartition makes a partition whose poll loop comes round by itself: the caller steers, delivers and steps. rejoin is
// called where the group is to be asked for a new assignment.
func NewPartition(a Assignment, newWorker func(Assignment) Worker, opts *ProcessorOptions, cl kmsg.Requestor, rejoin func(), log *slog.Logger) *Partition {
	return newPartition(a, newWorker, opts, cl, selfDriven{rejoin}, log)
}

func newPartition(a Assignment, newWorker func(Assignment) Worker, opts *ProcessorOptions, cl kmsg.Requestor, loop pollLoop, log *slog.Logger) *Partition {
	p := &Partition{
		assignment: a, opts: opts, cl: cl, loop: loop, queue: newQueue(loop), opened: make(chan struct{}),
		log: log.With("topic", a.Topic, "partition", a.Partition),
	}
	p.mu.state, p.mu.since, p.mu.movedAt = StateStarting, time.Now(), time.Now()
	p.mu.position = kafka.Position{Offset: -1, Epoch: -1}
	a.Opening = p.opening
	p.worker = newWorker(a)
	return p
}

// Step does what there is to do now, and tells whether there was anything. It does not fail: one partition's trouble is
// no other's. When ctx has ended nothing is begun; the batch in hand is finished within the shutdown timeout.
func (p *Partition) Step(ctx context.Context) (worked bool) {
	switch state := p.state(); {
	case ctx.Err() != nil, state != StateRunning && time.Now().Before(p.retryAt):
		return false
	case state == StateFenced:
		p.retryAt = time.Now().Add(p.rejoinAfter())
		p.loop.rejoin()
		return false
	case state != StateRunning:
		p.open(ctx)
		return true
	}
	b, err := p.next()
	if b == nil && err == nil {
		return false
	}
	work, cancel := outlive(ctx, p.opts.ShutdownTimeout)
	defer cancel()
	if err == nil {
		err = p.worker.Process(work, b)
	}
	p.lastDone = time.Now()
	switch {
	case err == nil:
		p.worked(b)
	case canceled(work, err):
		p.log.Warn("the batch in hand was given up at the end of the session; it is done anew by the next owner", "error", err)
		p.worker.Close()
	case errors.Is(err, errReopen):
		p.log.Info("opening the partition again", "why", err)
		p.worker.Close()
		p.open(work)
	default:
		p.fail(err)
	}
	if errors.Is(err, errMore) {
		p.loop.startOver(err)
	}
	return true
}

// Wait waits until there may be something to do.
func (p *Partition) Wait(ctx context.Context) {
	timer := time.NewTimer(min(p.opts.TickInterval, p.opts.ParkInterval) / 4)
	defer timer.Stop()
	select {
	case <-p.queue.changed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// open establishes position and state.
func (p *Partition) open(ctx context.Context) {
	defer p.first.Do(func() { close(p.opened) })
	position, err := p.establish(ctx)
	switch {
	case canceled(ctx, err):
		return // the session is over, which closes the worker
	case err != nil:
		p.fail(err)
		return
	}
	p.lastDone = time.Now()
	p.mu.Lock()
	if p.mu.state == StateParked {
		p.mu.doubt = p.mu.trouble
	}
	p.setState(StateRunning, Trouble{})
	p.mu.position, p.mu.inHand = position, 0
	p.mu.Unlock()
	p.log.Info("partition is running", "offset", position.Offset) // benchmarks count from here (package bench)
	p.queue.open(position)
}

// opening notes how far a partition is that is being opened.
func (p *Partition) opening(next, end int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.state != StateRunning {
		p.mu.position.Offset = next
		p.queue.endsAt(end, p.queue.end())
	}
}

func (p *Partition) establish(ctx context.Context) (kafka.Position, error) {
	if err := p.worker.Fence(ctx); err != nil {
		return kafka.Position{}, err
	}
	position, err := p.worker.Open(ctx)
	if err != nil {
		return kafka.Position{}, err
	}
	return position, checkTruncation(ctx, p.cl, p.assignment.Topic, p.assignment.Partition, position)
}

// next returns the batch to hand over now, or nil: there is nothing to do yet.
func (p *Partition) next() (*Batch, error) {
	records, next, err := p.queue.take(p.opts.MaxBatch)
	if err != nil || len(records) == 0 && time.Since(p.lastDone) < p.opts.TickInterval {
		return nil, err
	}
	reached := next
	if len(records) == 0 {
		reached = p.settled()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(records) == 0 {
		next = p.mu.position
	}
	p.mu.inHand = len(records)
	return &Batch{Topic: p.assignment.Topic, Partition: p.assignment.Partition, Records: records, Next: next, Reached: reached}, nil
}

// worked notes that a batch has been worked off.
func (p *Partition) worked(b *Batch) {
	p.failures = 0
	p.mu.Lock()
	if b.Next != p.mu.position || p.mu.inHand == 0 && p.queue.lag() == 0 { // a tick that leaves records lying is no progress
		p.mu.movedAt = time.Now()
	}
	p.mu.position, p.mu.inHand = b.Next, 0
	if p.mu.doubt != (Trouble{}) {
		p.log.Info("partition goes on", "offset", b.Next.Offset)
		p.mu.doubt = Trouble{}
		p.mu.since = time.Now()
	}
	p.mu.Unlock()
	recycle(b.Records)
	p.queue.reuse()
}

// fail closes the partition's work and decides what comes next: nothing until a new
// assignment (fenced), another look at the park interval (parked), or another try with
// growing delays.
func (p *Partition) fail(err error) {
	if w, ok := p.worker.(failedWorker); ok {
		w.Failed(err)
	}
	p.worker.Close()
	p.queue.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.inHand = 0
	if errors.Is(err, kafka.ErrFenced) {
		p.log.Warn("gave the partition up", "error", err)
		p.retryAt = time.Now().Add(p.rejoinAfter())
		p.setState(StateFenced, Trouble{Reason: err.Error()})
		return
	}
	why := TroubleOf(err)
	if why.Cause == CauseLoss {
		why.Remedy = cmp.Or(p.opts.LossRemedy, why.Remedy)
	}
	p.retryAt = time.Now().Add(p.backoff(parks(err)))
	if p.mu.trouble.Reason != why.Reason && p.mu.doubt.Reason != why.Reason {
		p.log.Warn("partition is parked", "cause", why.Cause, "reason", why.Reason, "remedy", cmp.Or(why.Remedy, byItself), "next_look", time.Until(p.retryAt).Round(time.Millisecond))
	}
	p.setState(StateParked, why)
}

// rejoinAfter is how long a fenced partition waits for a rebalance to come by itself:
// by then the group has noticed a member that was away. If none has come, nobody took
// the partition (a transaction that timed out fences, too), and the group is asked who
// owns it.
func (p *Partition) rejoinAfter() time.Duration { return 2 * p.opts.SessionTimeout }

const firstBackoff = 50 * time.Millisecond

func (p *Partition) backoff(park bool) time.Duration {
	if park {
		return p.opts.ParkInterval
	}
	d := firstBackoff << min(p.failures, 16)
	p.failures++
	return min(d, p.opts.ParkInterval)
}

// setState is called with mu held.
func (p *Partition) setState(state string, why Trouble) {
	if p.mu.state != state || p.mu.trouble.Reason != why.Reason {
		p.mu.since = time.Now()
	}
	p.mu.state, p.mu.trouble = state, why
}

func (p *Partition) state() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.state
}

// Close ends the partition's work.
func (p *Partition) Close() { p.worker.Close() }

// Deliver hands over what was fetched.
func (p *Partition) Deliver(fetched *kgo.FetchPartition) { p.queue.push(fetched) }

// Steer tells whether the partition is to be fetched, and where to go on with it if that has changed.
func (p *Partition) Steer() (fetch bool, moved *kafka.Position) {
	paused, _, moved := p.queue.flow(time.Now(), pendingBatches*p.opts.MaxBatch)
	if moved != nil {
		p.queue.sought(*moved)
	}
	return !paused, moved
}

// selfDriven is a poll loop that comes round by itself.
type selfDriven struct{ ask func() }

func (selfDriven) wake()           {}
func (selfDriven) roomAgain()      {}
func (l selfDriven) rejoin()       { l.ask() }
func (selfDriven) startOver(error) {}

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
