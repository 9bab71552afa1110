package stream

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/stream/kafka"
)

// Worker does a role's work on one partition. One goroutine calls its methods, in this order:
//
//	Fence → Open → Process … → Close
//
// After an error the partition restarts with Fence, so Fence and Open must read all state again.
type Worker interface {
	// Fence takes the partition over from an earlier owner, before any state is read.
	Fence(ctx context.Context) error
	// Open brings the state up to date and returns the position to resume from.
	Open(ctx context.Context) (kafka.Position, error)
	// Process handles a batch. When it returns nil, b.Next is the new position. A batch without records is a tick.
	Process(ctx context.Context, b *Batch) error
	// Close releases what Fence and Open acquired. It may be called at any time.
	Close()
}

// Optional methods of a Worker. Failed gets the error that closes the partition, before Close. Leave is called once, at
// the end of the session.
type (
	failedWorker  interface{ Failed(err error) }
	leavingWorker interface{ Leave() }
)

// Assignment is a partition from its assignment until it is assigned to another process. A Worker is made for it.
type Assignment struct {
	Topic     string
	Partition int32
	// Member returns the current membership of a group, or ErrFenced once the partition is not assigned any more. A
	// Follower has none.
	Member func() (kafka.Member, error)
	// Log identifies the topic, and Partitions is its partition count; set by a Follower.
	Log        kafka.LogID
	Partitions int32
	Opening    func(next, end int64) // reports the progress of an Open that reads the partition itself
}

// Batch holds the records that arrived while the previous batch was processed, up to MaxBatch. A batch without records
// is a tick, which comes at an interval while nothing arrives.
type Batch struct {
	Topic     string
	Partition int32
	// Records are in offset order, without control records. Offsets may have holes. The worker owns the records until
	// Process returns; it may keep their keys and values.
	Records []*kgo.Record
	Next    kafka.Position // the position after the batch
	// Reached is Next or, in a tick, the position after everything fetched: there may be control records after Next.
	Reached kafka.Position
	// Gap: offsets may be missing before or between the records, of records that compaction has removed or of aborted
	// transactions. End is the last stable offset, as of the last fetch.
	Gap bool
	End int64
}

// States of a partition, as status and metrics show them.
const (
	StateStarting = "starting" // opening for the first time
	StateRunning  = "running"
	StateParked   = "parked" // paused until its cause is fixed
	StateFenced   = "fenced" // owned by another process; waits for a new assignment
)

// Partition follows one partition of a topic: it opens its worker, passes it batches, and decides what an error means.
//
//	starting ─► open: fence, state, position ─► running ─┬─ error ─► parked ─► open, after the park interval or sooner
//	                                                     └─ fenced, until the next generation
//
// One goroutine calls Step and Wait. The poll loop calls Deliver and Flow concurrently.
type Partition struct {
	assignment Assignment
	worker     Worker
	opts       *ProcessorOptions
	cl         kmsg.Requestor // for the truncation check
	loop       pollLoop
	log        *slog.Logger
	queue      *queue

	failures int       // since the last progress: a batch, or a tick without lag
	lastDone time.Time // when the last batch or tick ended
	retryAt  time.Time // when a parked or fenced partition is tried again
	opened   chan struct{}
	// workedIn is the generation of its last records or attempt to open. If fenced, it is not opened again in it.
	workedIn int32
	unknown  bool      // the last attempt to open ended with UNKNOWN_MEMBER_ID, for the first time
	first    sync.Once // closes opened after the first Open, successful or not
	// unanswered is when the log's end could not be read; only the watchdog uses it.
	unanswered time.Time

	mu struct {
		sync.Mutex
		state   string
		failure Failure
		// lastFailure is why the partition was parked last, until there is progress:
		// reopening alone must not clear a failure that only Process can detect.
		lastFailure Failure
		reported    Failure // the one logged last, until there is progress
		since       time.Time
		position    kafka.Position
		movedAt     time.Time // when the position last moved, or a tick found no lag
		inFlight    int       // records that the worker processes
		hidden      hidden
	}
}

// NewPartition returns a partition that its caller drives: like a poll loop with Flow and Deliver, and with Step.
// rejoin asks the group for a new assignment.
func NewPartition(a Assignment, newWorker func(Assignment) Worker, opts *ProcessorOptions, cl kmsg.Requestor,
	rejoin func(), log *slog.Logger,
) *Partition {
	return newPartition(a, newWorker, opts, cl, selfDriven{rejoin}, log)
}

func newPartition(a Assignment, newWorker func(Assignment) Worker, opts *ProcessorOptions, cl kmsg.Requestor,
	loop pollLoop, log *slog.Logger,
) *Partition {
	p := &Partition{assignment: a, opts: opts, cl: cl, loop: loop, queue: newQueue(loop), opened: make(chan struct{}),
		log: log.With("topic", a.Topic, "partition", a.Partition)}
	p.mu.state, p.mu.since, p.mu.movedAt = StateStarting, time.Now(), time.Now()
	p.mu.position = kafka.Position{Offset: -1, Epoch: -1}
	a.Opening = p.opening
	p.worker = newWorker(a)
	return p
}

// Step does the next work, and reports whether there was any. It returns no error: one partition's failure must not
// stop the others. It starts nothing after ctx is canceled; a batch in flight may finish within the shutdown timeout.
func (p *Partition) Step(ctx context.Context) (worked bool) {
	generation := p.generation()
	switch state := p.state(); {
	case ctx.Err() != nil, state == StateParked && time.Now().Before(p.retryAt):
		return false
	case state == StateFenced && generation == p.workedIn:
		if time.Now().Before(p.retryAt) {
			return false
		}
		if !p.unknown {
			p.retryAt = time.Now().Add(p.rejoinAfter())
			p.loop.rejoin()
			return false
		}
		fallthrough
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
		if len(b.Records) > 0 {
			p.workedIn = generation
		}
		p.worked(b)
	case canceled(work, err):
		p.log.Warn("gave up the batch in flight at the end of the session; the next owner processes it", "error", err)
		p.worker.Close()
	case errors.Is(err, errReopen):
		p.log.Info("opening the partition again", "error", err)
		p.worker.Close()
		p.open(work)
	default:
		p.fail(err)
	}
	return true
}

// generation returns the generation of the group that the partition is assigned in; 0 without a group.
func (p *Partition) generation() int32 {
	if p.assignment.Member == nil {
		return 0
	}
	m, _ := p.assignment.Member()
	return m.Generation
}

// Wait blocks until there may be work for Step.
func (p *Partition) Wait(ctx context.Context) {
	longest := min(p.opts.TickInterval, p.opts.ParkInterval) / 4
	if retry := time.Until(p.retryAt); retry > 0 {
		longest = min(longest, retry)
	}
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-p.queue.changed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (p *Partition) open(ctx context.Context) {
	defer p.first.Do(func() { close(p.opened) })
	p.workedIn = p.generation()
	position, err := p.establish(ctx)
	switch {
	case canceled(ctx, err):
		return // the end of the session closes the worker
	case err != nil:
		p.fail(err)
		return
	}
	p.lastDone, p.unknown = time.Now(), false
	p.mu.Lock()
	if p.mu.state == StateParked {
		p.mu.lastFailure = p.mu.failure
	}
	p.setState(StateRunning, Failure{})
	p.mu.position, p.mu.inFlight = position, 0
	p.mu.Unlock()
	p.log.Info("partition is running", "event", "partition_running", "offset", position.Offset) // read by package bench
	p.queue.open(position)
}

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

// next returns the next batch, or nil if there is none yet.
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
	p.mu.inFlight = len(records)
	return &Batch{Topic: p.assignment.Topic, Partition: p.assignment.Partition, Records: records, Next: next,
		Reached: reached, Gap: len(records) > 0 && p.queue.gapFrom(records[0].Offset), End: p.queue.end()}, nil
}

func (p *Partition) worked(b *Batch) {
	p.mu.Lock()
	// A tick is progress only if there is no lag: the records that failed may not have been fetched again.
	if b.Next != p.mu.position || p.mu.inFlight == 0 && p.queue.lag() == 0 {
		p.mu.movedAt = time.Now()
		if p.mu.reported != (Failure{}) {
			p.log.Info("partition resumes", "offset", b.Next.Offset, "failed_attempts", p.failures)
			p.mu.reported = Failure{}
		}
		if p.mu.lastFailure != (Failure{}) {
			p.mu.lastFailure = Failure{}
			p.mu.since = p.mu.movedAt
		}
		p.failures = 0
	}
	p.mu.position, p.mu.inFlight = b.Next, 0
	p.mu.Unlock()
	recycle(b.Records)
	p.queue.reuse()
}

// fail closes the worker and applies the retry policy: a fenced partition waits for a new assignment; after a ParkError
// it is retried at the park interval, after any other error with growing delays.
func (p *Partition) fail(err error) {
	if w, ok := p.worker.(failedWorker); ok {
		w.Failed(err)
	}
	p.worker.Close()
	p.queue.close()
	if errors.Is(err, errMore) {
		p.loop.startOver(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.inFlight = 0
	if errors.Is(err, kafka.ErrFenced) {
		// No warning: in a rebalance, the new owner cuts off what is in flight. rejoin warns if there was none.
		p.log.Info("gave up the partition: waiting for a new assignment", "event", "partition_fenced", "error", err)
		p.retryAt = time.Now().Add(p.rejoinAfter())
		// A coordinator that lost its role while it was unavailable says so, too, and nothing was initialized.
		if p.unknown = !p.unknown && errors.Is(err, kerr.UnknownMemberID); p.unknown {
			p.retryAt = time.Now().Add(p.opts.SessionTimeout / 3)
		}
		p.setState(StateFenced, Failure{Reason: err.Error()})
		return
	}
	why := FailureOf(err)
	if why.Cause == CauseLoss {
		why.Action = cmp.Or(p.opts.LossAction, why.Action)
	}
	p.retryAt = time.Now().Add(p.backoff(parks(err)))
	// While a server is unavailable, each step fails in words of its own. What succeeds when it is repeated, such as a
	// commit in flight when another process takes the partition, is no outage.
	still := why.Cause == CauseUnavailable && p.mu.reported.Cause == CauseUnavailable
	if (parks(err) || p.failures > 1) && !still && p.mu.reported.Reason != why.Reason {
		p.mu.reported = why
		p.log.Warn("partition is parked", "cause", why.Cause, "reason", why.Reason,
			"action", cmp.Or(why.Action, byItself), "retry_in", time.Until(p.retryAt).Round(time.Millisecond))
	}
	p.setState(StateParked, why)
}

// rejoinAfter is how long a fenced partition waits for a rebalance: longer than one takes. If none comes, nobody took
// the partition (tools and transaction timeouts fence, too), and it asks for a new assignment.
func (p *Partition) rejoinAfter() time.Duration { return p.opts.SessionTimeout }

const firstBackoff = 50 * time.Millisecond

func (p *Partition) backoff(park bool) time.Duration {
	if park {
		return p.opts.ParkInterval
	}
	d := firstBackoff << min(p.failures, 16)
	p.failures++
	return min(d, p.opts.ParkInterval)
}

func (p *Partition) run(ctx context.Context) {
	for ctx.Err() == nil {
		if !p.Step(ctx) {
			p.Wait(ctx)
		}
	}
}

// Close closes the worker, at the end of the session.
func (p *Partition) Close() {
	p.worker.Close()
	if w, ok := p.worker.(leavingWorker); ok {
		w.Leave()
	}
}

// Deliver adds fetched records, or a fetch error.
func (p *Partition) Deliver(fetched *kgo.FetchPartition) { p.queue.enqueue(fetched) }

// Flow returns whether to fetch the partition, and the position to seek to, if any.
func (p *Partition) Flow() (fetch bool, moved *kafka.Position) {
	paused, _, moved := p.queue.flow(time.Now(), pendingBatches*p.opts.MaxBatch)
	if moved != nil {
		p.queue.seekConfirmed(*moved)
	}
	return !paused, moved
}

type selfDriven struct{ ask func() } // the poll loop of NewPartition, whose caller polls without being asked

func (selfDriven) wake()           {}
func (selfDriven) capacityFreed()  {}
func (l selfDriven) rejoin()       { l.ask() }
func (selfDriven) startOver(error) {}

// outlive returns a context that is canceled d after ctx: a batch in flight may finish at shutdown.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(d, cancel)
		context.AfterFunc(detached, func() { timer.Stop() })
	})
	return detached, func() { stop(); cancel() }
}
