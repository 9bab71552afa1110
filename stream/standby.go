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
	// standbyTick is how often a copy where nothing comes is looked after.
	standbyTick = time.Second
	// standbyPark is how often a failing copy is retried.
	standbyPark = 5 * time.Second
	// standbyBatch records are written at a time: a takeover waits for them.
	standbyBatch = 10_000
	// standbyAtATime copies read their backlog or write at a time: they are to take little from the partitions that are
	// worked on, also when all of them begin at once.
	standbyAtATime = 4
)

// standby keeps copies of the state table's partitions that this process does not own, so that taking one over reads
// only what has not been followed yet. A partition's folder has one user at a time:
//
//	assigned ─► release (the copy is closed) ─► the Worker opens the store … closes it with its session ─► follow
//
// goka's own hot standby opens nothing before all copies have recovered, fails the whole processor with a copy that
// fails, and closes all of them at each rebalance.
type standby struct {
	*Follower
	turns    chan struct{} // has one for each copy that reads its backlog or writes
	patience time.Duration
	cancel   context.CancelFunc
	done     chan struct{}
}

// newStandby follows nothing yet; without Standby it is nil, which never does.
func newStandby(ctx context.Context, opts *ProcessorOptions, log *slog.Logger) *standby {
	if opts.Standby == nil {
		return nil
	}
	follow := ProcessorOptions{
		Group: opts.Group, Input: tableOf(opts.Group), Kafka: opts.Kafka, MaxBatch: standbyBatch,
		TickInterval: standbyTick, ParkInterval: standbyPark, ShutdownTimeout: opts.ShutdownTimeout,
	}
	s := &standby{turns: make(chan struct{}, standbyAtATime), patience: opts.ShutdownTimeout, done: make(chan struct{})}
	// What stands still must not end the process, which works on other partitions.
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

// release ends the copies of what is to be opened by its owner, and returns when their stores are closed. It is cut
// short by ctx, and bounded: a process whose disk does not answer is not to hold partitions.
func (s *standby) release(ctx context.Context, owned map[int32]*Partition) error {
	if s == nil {
		return nil
	}
	return s.Follower.release(ctx, s.patience, owned)
}

// follow begins with the copies of all but the owned partitions; those that are followed already go on.
func (s *standby) follow(owned map[int32]*Partition) {
	if s != nil {
		s.followWanted(func(n int32) bool { return owned[n] == nil })
	}
}

// close ends all copies, and waits for them with a bound.
func (s *standby) close() {
	if s == nil {
		return
	}
	s.cancel()
	select {
	case <-s.done:
	case <-time.After(s.patience):
		s.log.Error("the standby copies were not closed in time")
	}
}

// standbyCopy is the Worker of one copy: what fails there harms nobody else.
type standbyCopy struct {
	a     Assignment
	opts  *ProcessorOptions
	turns chan struct{}
	log   *slog.Logger

	store *store.Store
}

// Fence has nobody to fence: a copy is this process's own.
func (c *standbyCopy) Fence(context.Context) error { return nil }

// Open reads what the copy does not have yet.
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

// Process writes what comes.
func (c *standbyCopy) Process(ctx context.Context, b *Batch) error {
	if err := c.store.Room(); err != nil || len(b.Records) == 0 {
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

// Failed has a copy that is ahead of its log be rebuilt.
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

// What a copy does, for metrics: opening until it has come to the end of its log, failing while it is tried again.
const (
	standbyOpening   = "opening"
	standbyFollowing = "following"
	standbyFailing   = "failing"
)

var standbyStates = map[string]string{StateStarting: standbyOpening, StateRunning: standbyFollowing,
	StateParked: standbyFailing}

var (
	standbyBehindDesc = prometheus.NewDesc("kudos_standby_behind_records",
		"Offsets that the standby copy of a partition of the group's state table is behind the end of its changelog.",
		[]string{"group", "partition"}, nil)
	standbyCopiesDesc = prometheus.NewDesc("kudos_standby_copies",
		"Standby copies of partitions of the group's state table, by what they do: opening, following or failing.",
		[]string{"group", "state"}, nil)
)

type standbyCollector struct{ p *Processor }

// NewStandbyCollector makes a Prometheus collector of a processor's standby copies.
func NewStandbyCollector(p *Processor) prometheus.Collector { return standbyCollector{p} }

func (standbyCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- standbyBehindDesc
	ch <- standbyCopiesDesc
}

func (c standbyCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{c.p.opts.Group}, labels...)...)
	}
	copies := map[string]int{}
	for _, status := range c.p.standbyCopies() {
		copies[standbyStates[status.State]]++
		if status.Position.Offset >= 0 {
			gauge(standbyBehindDesc, float64(status.Lag), strconv.Itoa(int(status.Partition)))
		}
	}
	for _, state := range standbyStates { // all of them: an alert needs a 0 to come back to
		gauge(standbyCopiesDesc, float64(copies[state]), state)
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
