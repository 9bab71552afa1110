package stream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
	"kudos/stream/store"
)

// ProcessorOptions configures a goka group or a Follower.
type ProcessorOptions struct {
	// Group is the consumer group, Input the topic that it consumes.
	Group, Input string
	Table        bool // the group has a state table, the topic <Group>-table
	// Standby holds replicas of the table's partitions that others own, in the same directory. nil: no replicas.
	Standby *store.Set
	// ProcessID is the same after a restart on the same disk, and in all groups of the process; see ProcessID.
	ProcessID string
	// Check runs before the group is joined. While it fails, the process stays out and retries. nil: no check.
	Check func(context.Context, *kgo.Client) error
	// CommitPositions commits the positions concurrently: for dashboards, and for workers that may repeat what they did
	// in the last second. Otherwise the Worker does, or nobody.
	CommitPositions bool
	// LossAction is what the operator does when records of Input are lost: deleted unprocessed, or truncated afterward.
	LossAction string

	Kafka           kafka.Options
	MaxBatch        int
	CollectFor      time.Duration // between deliveries, while the partitions keep up; 0: deliver at once
	TickInterval    time.Duration // how often an idle partition gets an empty batch
	ParkInterval    time.Duration // how often a parked partition is retried
	SessionTimeout  time.Duration // how long the group waits for a silent member before it removes it
	ShutdownTimeout time.Duration // bounds the batch in flight when the session ends

	// Settings of the watchdog, which tests change. stalled is called when a partition is stuck for no known reason.
	watchInterval, stallTimeout time.Duration
	// heartbeatInterval is how soon a member notices a rebalance, which it must join before partitions can move.
	heartbeatInterval time.Duration
	stalled           func(why string)
}

// Processor runs one goka group until its context ends: each partition with a goka processor of its own, which any
// error ends for good.
type Processor struct {
	opts      ProcessorOptions
	newWorker func(Assignment) Worker
	log       *slog.Logger

	mu struct {
		sync.Mutex
		group *group
		err   error // why no goka processor is running
	}
}

// NewProcessor returns a processor; it calls newWorker for each assigned partition.
func NewProcessor(opts ProcessorOptions, newWorker func(Assignment) Worker, log *slog.Logger) *Processor {
	opts.setDefaults()
	p := &Processor{opts: opts, newWorker: newWorker, log: log.With("group", opts.Group)}
	p.mu.err = errors.New("not started")
	return p
}

func (o *ProcessorOptions) setDefaults() {
	o.watchInterval = cmp.Or(o.watchInterval, watchInterval)
	o.stallTimeout = cmp.Or(o.stallTimeout, stallTimeout)
	o.heartbeatInterval = cmp.Or(o.heartbeatInterval, min(heartbeatInterval, o.SessionTimeout/5))
	o.ProcessID = cmp.Or(o.ProcessID, rand.Text())
	if o.stalled == nil {
		o.stalled = die
	}
}

// heartbeatInterval costs 4 small requests per second and group.
const heartbeatInterval = 250 * time.Millisecond

const restartMin, restartMax = 100 * time.Millisecond, 10 * time.Second

// again calls run until ctx ends, with growing delays. failed gets each error and the delay before the next attempt.
func again(ctx context.Context, run func(context.Context) error, failed func(err error, in time.Duration)) {
	for backoff := restartMin; ; backoff = min(2*backoff, restartMax) {
		began := time.Now()
		err := run(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("ended without an error")
		}
		if time.Since(began) > time.Minute {
			backoff = restartMin
		}
		failed(err, backoff)
		if !kafka.Sleep(ctx, backoff) {
			return
		}
	}
}

// Run blocks until ctx ends; it retries after every error.
func (p *Processor) Run(ctx context.Context) error {
	again(ctx, p.runOnce, func(err error, in time.Duration) {
		p.log.Error("the group's processor failed and is started again", "error", err, "action", actionOf(err),
			"retry_in", in)
		p.setRunning(nil, err)
	})
	return nil
}

// runOnce is a member of the group, until a failure of all partitions.
func (p *Processor) runOnce(ctx context.Context) error {
	cl, err := p.opts.newFetchClient(p.log, 100*time.Millisecond, kgo.WithPools(&recordPool{}))
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := p.check(ctx, cl); err != nil {
		return err
	}
	if _, err := newGoka(ctx, &p.opts, cl, p.log, nil); err != nil { // a process that could open nothing takes nothing
		return err
	}
	g := &group{poller: newPoller(&p.opts, p.log), newWorker: p.newWorker, started: map[int32]*started{},
		balancer: balancer{topic: p.opts.Input, process: p.opts.ProcessID}, endFollow: func() {}}
	g.standby = newStandby(ctx, &p.opts, p.log)
	defer g.standby.close()
	p.setRunning(g, nil)
	return g.run(ctx, cl)
}

func (p *Processor) check(ctx context.Context, cl *kgo.Client) error {
	if p.opts.Check == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.opts.Kafka.RequestTimeout)
	defer cancel()
	return p.opts.Check(ctx, cl)
}

// NotYet sets the reason that Ready returns before Run.
func (p *Processor) NotYet(why error) { p.setRunning(nil, why) }

func (p *Processor) setRunning(g *group, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.group, p.mu.err = g, err
}

// Status returns the status of each assigned partition, in partition order. The error says why nothing is assigned.
func (p *Processor) Status() ([]PartitionStatus, error) {
	p.mu.Lock()
	g, err := p.mu.group, p.mu.err
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s := g.shown.Load()
	if s == nil || g.current.Load() == nil {
		return nil, g.waiting()
	}
	return s.statuses(), nil
}

// Ready returns nil if all assigned partitions run. Otherwise its error names the others, the reason and the action.
func (p *Processor) Ready() error {
	statuses, err := p.Status()
	if err != nil {
		return fmt.Errorf("group %s: %w%s", p.opts.Group, err, actionNote(actionOf(err)))
	}
	return ReadyOf(p.opts.Group, statuses)
}
