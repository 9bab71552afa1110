package stream

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kudos/stream/kafka"
	"kudos/stream/store"
)

const (
	standbyTick  = time.Second     // how often an idle replica gets a tick
	standbyPark  = 5 * time.Second // how often a failing replica is retried
	standbyBatch = 10_000          // bounds the records of one write: a takeover waits for it
	// standbyParallel is how many replicas read their backlog or write concurrently: owned partitions must stay fast.
	standbyParallel = 4
)

// standby keeps standby replicas of the state table's partitions that this process does not own, so that taking one
// over reads only the rest of its changelog. A partition's directory has one user at a time:
//
//	assigned ─► release (the replica is closed) ─► the Worker opens the store … revoked: closes it ─► follow
//
// goka's own hot standby opens no partition before all replicas have recovered, fails the whole processor when one
// replica fails, and closes all of them at each rebalance.
type standby struct {
	*Follower
	turns  chan struct{} // a slot for each replica that reads its backlog or writes
	cancel context.CancelFunc
	done   chan struct{}
}

// newStandby starts without replicas. If opts.Standby is nil, it returns nil, which never has any.
func newStandby(ctx context.Context, opts *ProcessorOptions, log *slog.Logger) *standby {
	if opts.Standby == nil {
		return nil
	}
	follow := ProcessorOptions{Group: opts.Group, Input: tableOf(opts.Group), Kafka: opts.Kafka, MaxBatch: standbyBatch,
		TickInterval: standbyTick, ParkInterval: standbyPark, ShutdownTimeout: opts.ShutdownTimeout}
	s := &standby{turns: make(chan struct{}, standbyParallel), done: make(chan struct{})}
	// A stalled replica must not end the process, which has partitions of its own.
	follow.stalled = func(why string) { s.startOver(errors.New(why)) }
	s.Follower = NewFollower(follow, func(a Assignment) Worker {
		return &standbyCopy{a: a, opts: opts, turns: s.turns, log: log.With("topic", a.Topic, "partition", a.Partition)}
	}, nil, log.With("standby_of", opts.Group))
	s.mu.wanted = func(int32) bool { return false }
	ctx, s.cancel = context.WithCancel(ctx)
	go func() {
		defer close(s.done)
		_ = s.Run(ctx)
	}()
	return s
}

// release ends the replica of a partition that its owner is about to open, and returns when its store is closed. It is
// bounded by ctx and ShutdownTimeout: a process whose disk hangs must not hold the partition.
func (s *standby) release(ctx context.Context, n int32) error {
	if s == nil {
		return nil
	}
	return s.Follower.release(ctx, n)
}

// follow starts replicas of all but the owned partitions; running replicas continue.
func (s *standby) follow(owned map[int32]*Partition) {
	if s != nil {
		s.followWanted(func(n int32) bool { return owned[n] == nil })
	}
}

// close ends all replicas and waits for them, up to ShutdownTimeout.
func (s *standby) close() {
	if s == nil {
		return
	}
	s.cancel()
	select {
	case <-s.done:
	case <-time.After(s.opts.ShutdownTimeout):
		s.log.Error("the standby replicas were not closed in time")
	}
}

// standbyCopy is the Worker of one standby replica. Its failures affect nothing else.
type standbyCopy struct {
	a     Assignment
	opts  *ProcessorOptions
	turns chan struct{}
	log   *slog.Logger

	store *store.Store
}

// Fence does nothing: only this process writes its replica.
func (c *standbyCopy) Fence(context.Context) error { return nil }

// Open reads the part of the changelog that the replica lacks.
func (c *standbyCopy) Open(ctx context.Context) (kafka.Position, error) {
	if err := c.takeTurn(ctx); err != nil {
		return kafka.Position{}, err
	}
	defer c.endTurn()
	cl, err := c.opts.Kafka.NewClient(c.log)
	if err != nil {
		return kafka.Position{}, err
	}
	defer cl.Close()
	if c.store == nil {
		c.store = c.opts.Standby.New(c.a.Topic, c.a.Partition)
	}
	next, err := c.store.CatchUp(ctx, cl, store.Hooks{Progress: c.a.Opening})
	return kafka.Position{Offset: next, Epoch: -1}, err
}

// Process writes the batch to the store.
func (c *standbyCopy) Process(ctx context.Context, b *Batch) error {
	if err := c.store.AwaitWritable(); err != nil || len(b.Records) == 0 {
		return err
	}
	if err := c.takeTurn(ctx); err != nil {
		return err
	}
	defer c.endTurn()
	return c.store.Replay(b.Records, b.Next.Offset-1)
}

func (c *standbyCopy) takeTurn(ctx context.Context) error {
	select {
	case c.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *standbyCopy) endTurn() { <-c.turns }

// Failed has the store rebuilt if it is ahead of its log.
func (c *standbyCopy) Failed(err error) {
	if c.store != nil && logWentBack(err) {
		c.store.Distrust(err)
	}
}

// Close leaves the store open: the next Open continues with it.
func (c *standbyCopy) Close() {}

// Leave flushes and closes the store.
func (c *standbyCopy) Leave() {
	if c.store != nil {
		store.Leave(c.store)
	}
}

// standbyStates are a replica's states in metrics: opening until the end of its log, failing while it is retried.
var standbyStates = map[string]string{StateStarting: "opening", StateRunning: "following", StateParked: "failing"}

var (
	standbyBehindDesc = prometheus.NewDesc("kudos_standby_behind_records",
		"Offsets by which the standby replica of a state table partition is behind the end of its changelog.",
		[]string{"group", "partition"}, nil)
	standbyCopiesDesc = prometheus.NewDesc("kudos_standby_copies",
		"Standby replicas of partitions of the group's state table, by state: opening, following or failing.",
		[]string{"group", "state"}, nil)
)

type standbyCollector struct{ p *Processor }

// NewStandbyCollector returns a Prometheus collector of a processor's standby replicas.
func NewStandbyCollector(p *Processor) prometheus.Collector { return standbyCollector{p} }

func (standbyCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- standbyBehindDesc
	ch <- standbyCopiesDesc
}

func (c standbyCollector) Collect(ch chan<- prometheus.Metric) {
	copies := map[string]int{}
	for _, status := range c.p.standbyCopies() {
		copies[standbyStates[status.State]]++
		if status.Position.Offset >= 0 {
			gauge(ch, standbyBehindDesc, float64(status.Lag), c.p.opts.Group, strconv.Itoa(int(status.Partition)))
		}
	}
	for _, state := range standbyStates { // all of them: an alert needs a 0 to resolve
		gauge(ch, standbyCopiesDesc, float64(copies[state]), c.p.opts.Group, state)
	}
}

func (p *Processor) standbyCopies() []PartitionStatus {
	p.mu.Lock()
	g := p.mu.group
	p.mu.Unlock()
	if g == nil || g.standby == nil {
		return nil
	}
	statuses, _ := g.standby.Status()
	return statuses
}
