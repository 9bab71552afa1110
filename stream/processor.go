package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
	"kudos/stream/store"
)

// ProcessorOptions describe one goka group.
type ProcessorOptions struct {
	// Group is the consumer group, Input the topic that it reads.
	Group, Input string
	// Table: the group has a state table, the topic <Group>-table.
	Table bool
	// Standby has copies of the partitions of the table that others own, below the folder that has those of the
	// workers' own. nil: there are none.
	Standby *store.Set
	// Check is asked before the group is joined; its error keeps the process out of the
	// group, and is asked for again. nil: nothing is to be checked.
	Check func(context.Context, *kgo.Client) error
	// CommitPositions: the group's offsets are committed beside the work, for
	// dashboards. Otherwise they are the Worker's to commit, or nobody's.
	CommitPositions bool
	// LossRemedy is what a person does when records of Input are gone that had not been
	// worked on, or had been and were cut off.
	LossRemedy string

	Kafka    kafka.Options
	MaxBatch int
	// TickInterval is how often a partition with nothing to do gets an empty batch.
	TickInterval time.Duration
	// ParkInterval is how often a parked partition is looked at again.
	ParkInterval time.Duration
	// SessionTimeout is how long the group waits for a silent member.
	SessionTimeout time.Duration
	// ShutdownTimeout bounds the batch in hand when the session ends.
	ShutdownTimeout time.Duration

	// Of the watchdog; tests have others. stalled is called when a partition stands still for no known reason.
	watchInterval, stallTimeout time.Duration
	// heartbeatInterval is how soon a member notices a rebalance; a fifth of SessionTimeout. Tests have less, so that a
	// busy machine still keeps the session.
	heartbeatInterval time.Duration
	stalled           func(why string)
}

// Processor runs one goka group until it is told to stop. goka ends a processor at
// any error and runs it only once; this one is built again then.
type Processor struct {
	opts      ProcessorOptions
	newWorker func(Assignment) Worker
	log       *slog.Logger

	mu struct {
		sync.Mutex
		group *group
		err   error // why there is no goka processor at the moment
	}
}

// NewProcessor makes a processor; newWorker is called for each assigned partition.
func NewProcessor(opts ProcessorOptions, newWorker func(Assignment) Worker, log *slog.Logger) *Processor {
	opts.watchInterval, opts.stallTimeout = cmp.Or(opts.watchInterval, watchInterval),
		cmp.Or(opts.stallTimeout, stallTimeout)
	opts.heartbeatInterval = cmp.Or(opts.heartbeatInterval, opts.SessionTimeout/5)
	if opts.stalled == nil {
		opts.stalled = die
	}
	p := &Processor{opts: opts, newWorker: newWorker, log: log.With("group", opts.Group)}
	p.mu.err = errors.New("not started")
	return p
}

const (
	restartMin = 100 * time.Millisecond
	restartMax = 10 * time.Second
)

// again runs something until ctx ends, and after an error once more, a while later. failed is told of each.
func again(ctx context.Context, run func(context.Context) error, failed func(err error, in time.Duration)) {
	for backoff := restartMin; ; backoff = min(2*backoff, restartMax) {
		began := time.Now()
		err := run(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("it ended without an error")
		}
		if time.Since(began) > time.Minute {
			backoff = restartMin
		}
		failed(err, backoff)
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
		}
	}
}

// Run blocks until ctx ends; it goes on over all errors of Kafka.
func (p *Processor) Run(ctx context.Context) error {
	again(ctx, p.runOnce, func(err error, in time.Duration) {
		p.log.Error("the group's processor failed and is started again", "error", err, "remedy", remedyOf(err),
			"in", in)
		p.setRunning(nil, err)
	})
	return nil
}

// runOnce joins the group with goka, until something fails that a new session would not mend.
func (p *Processor) runOnce(ctx context.Context) error {
	cl, err := p.opts.Kafka.NewClient(p.log)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := p.check(ctx, cl); err != nil {
		return err
	}
	g := newGroup(&p.opts, p.newWorker, p.log)
	proc, err := newGoka(g, cl)
	if err != nil {
		return fmt.Errorf("setting up group %s: %w", p.opts.Group, err)
	}
	g.standby = newStandby(ctx, &p.opts, p.log)
	defer g.standby.close()
	p.setRunning(g, nil)
	return proc.Run(ctx)
}

func (p *Processor) check(ctx context.Context, cl *kgo.Client) error {
	if p.opts.Check == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.opts.Kafka.RequestTimeout)
	defer cancel()
	return p.opts.Check(ctx, cl)
}

// NotYet has Ready say why the group is not joined, before Run.
func (p *Processor) NotYet(why error) { p.setRunning(nil, why) }

func (p *Processor) setRunning(g *group, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.group, p.mu.err = g, err
}

// Status tells how each assigned partition is doing, by partition. The error says why there is no assignment.
func (p *Processor) Status() ([]PartitionStatus, error) {
	p.mu.Lock()
	g, err := p.mu.group, p.mu.err
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s := g.present()
	if s == nil {
		return nil, g.waiting()
	}
	return s.statuses(), nil
}

// Ready is nil when all assigned partitions are being worked on, and otherwise names
// those that are not, why, and what helps.
func (p *Processor) Ready() error {
	statuses, err := p.Status()
	if err != nil {
		return fmt.Errorf("group %s: %w%s", p.opts.Group, err, remedyNote(remedyOf(err)))
	}
	return ReadyOf(p.opts.Group, statuses)
}
