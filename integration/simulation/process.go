package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/integration/crashdisk"
	"kudos/processor"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// process is one run of the processor role, from its start to its end or crash.
type process struct {
	w      *world
	slot   int    // reused by its replacement; from 1
	name   string // of its slot, and which run of it
	disk   *crashdisk.Disk
	old    *crashdisk.Disk // an older copy of the disk; nil: none
	stores *store.Set
	db     *sql.Shards

	workers  *processor.Workers
	sessions [2]*session // by group; nil: none
	paused   bool        // does not run, and does not know it
	dead     bool
	older    bool // a build that does not write like-counts
}

// session is a process's part in a group, until it learns that it has lost its membership.
type session struct {
	g         *group
	proc      *process
	now, next assignment // received, and made by the group
	late      bool       // next is not received yet
	claims    []*claim   // of now
	working   []*claim   // including those that end
	ctx       context.Context
	cancel    context.CancelFunc
}

type assignment struct {
	member     string
	generation int32
	partitions []int32
}

type claim struct {
	consumer
	session *session
	cancel  context.CancelFunc
	zombie  bool   // has worked after its membership was lost
	missed  bool   // it may have belonged to others meanwhile
	state   string // at the last turn
}

// Thresholds are half a millisecond off the grid of virtual time, so that comparisons of times are never close.
const (
	offGrid      = 500 * time.Microsecond
	tickInterval = time.Second + offGrid
)

func (w *world) options() processor.Options {
	o := processor.DefaultOptions()
	o.MaxBatch = w.plan.maxBatch
	o.TransactionTimeout += offGrid
	o.SessionTimeout += offGrid
	o.ParkInterval += offGrid
	o.PositionCheckInterval += offGrid
	o.ShutdownTimeout += offGrid
	return o
}

func (w *world) start(disk *crashdisk.Disk) *process {
	p := &process{w: w, slot: 1, disk: disk}
	for w.inSlot(p.ref()) != nil {
		p.slot++
	}
	w.lives[p.slot]++
	if p.name = p.ref(); w.lives[p.slot] > 1 {
		p.name = fmt.Sprintf("%s.%d", p.ref(), w.lives[p.slot])
	}
	p.stores = store.NewSetOn(disk, "state", 1<<20, w.log)
	p.stores.BufferBytes = 2048 // spills to disk every few batches
	o := sql.DefaultOptions()
	o.DSN = "simulated@tcp(mysql:3306)/kudos"
	o.Retries, o.RetryBackoff, o.RetryBackoffMax = 2, time.Microsecond, time.Microsecond
	p.db = sql.NewShards(sql.NewOn(connector{p}, o, w.log))
	options := w.options()
	// Each start switches: two transactional ids, what the state table says, one. So groups are mixed, too.
	options.TransactionalIDs = []int{2, 1, 0}[(w.lives[p.slot]-p.slot+30)%3]
	p.workers = processor.NewWorkers(options, clients{p}, p.stores, p.db, w.log, nil)
	p.workers.FoldChunk = 3 // so that most batches have several chunks
	// Run in the same goroutine, so that a seed always gives the same schedule.
	p.workers.Concurrently = func(f func()) func() { f(); return func() {} }
	p.older = (w.lives[p.slot]+p.slot)%4 == 3 // upgrades and downgrades
	w.processes = append(w.processes, p)
	return p
}

func (p *process) ref() string { return fmt.Sprintf("p%d", p.slot) }

func (w *world) inSlot(ref string) *process {
	return find(w.processes, func(p *process) bool { return p.ref() == ref })
}

// end releases what a process holds in the simulation. All its actors have ended.
func (p *process) end() {
	_ = p.db.Close()
	p.stores.Close()
	p.w.processes = remove(p.w.processes, p)
}

func (g *group) session(p *process) *session {
	s := p.sessions[g.index]
	if s == nil {
		s = &session{g: g, proc: p}
		s.ctx, s.cancel = context.WithCancel(context.Background())
		p.sessions[g.index] = s
	}
	return s
}

// ends reports whether a partition still ends that is assigned again: it is closed before it starts.
func (s *session) ends() bool {
	return slices.ContainsFunc(s.working, func(c *claim) bool {
		return c.ctx.Err() != nil && slices.Contains(s.next.partitions, c.partition)
	})
}

// assigned is what package stream's group does after a rebalance: partitions that stay work on.
func (s *session) assigned() {
	missed := s.now.member != s.next.member || s.now.generation+1 != s.next.generation
	before := s.claims
	s.claims = nil
	for _, c := range before {
		if slices.Contains(s.next.partitions, c.partition) {
			c.missed = c.missed || missed
			s.claims = append(s.claims, c)
			s.g.w.count("partition: stays in a rebalance")
		} else {
			c.cancel()
		}
	}
	s.now, s.late = s.next, false
	for _, n := range s.now.partitions {
		if !slices.ContainsFunc(s.claims, func(c *claim) bool { return c.partition == n }) {
			s.start(n)
		}
	}
}

func (s *session) start(partition int32) {
	newWorker, g, p := s.proc.workers.Fold, s.g, s.proc
	if g.name == schema.GroupApply {
		newWorker = p.workers.Count
	}
	options := g.w.options()
	c := &claim{session: s, consumer: consumer{w: g.w, topic: g.topic, partition: partition}}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	a := stream.Assignment{Topic: g.topic, Partition: partition, Member: c.member}
	c.stream = stream.NewPartition(a, newWorker, &stream.ProcessorOptions{
		MaxBatch: options.MaxBatch, TickInterval: tickInterval, ParkInterval: options.ParkInterval,
		SessionTimeout: options.SessionTimeout, ShutdownTimeout: options.ShutdownTimeout,
	}, &client{w: g.w, proc: p}, func() { g.wanted = true }, g.w.log)
	c.actor = g.w.spawn(fmt.Sprintf("%s %s/%d", s.now.member, g.topic, partition), p.ref()+":"+c.name(), p, c.run)
	s.claims, s.working = append(s.claims, c), append(s.working, c)
}

func (c *claim) member() (kafka.Member, error) {
	if c.ctx.Err() != nil {
		return kafka.Member{}, fmt.Errorf("%w: %w", kafka.ErrFenced, c.ctx.Err())
	}
	now := c.session.now
	return kafka.Member{Group: c.session.g.name, ID: now.member, Generation: now.generation}, nil
}

// owns reports whether the group's current assignment is the one that the process has received.
func (c *claim) owns() bool {
	now := c.session.now
	return c.ctx.Err() == nil && c.session.g.member(now.member, now.generation) == nil
}

// stop ends a session; work in flight is finished.
func (s *session) stop() { s.cancel(); s.ended() }

func (s *session) ended() {
	if len(s.working) == 0 && s.ctx.Err() != nil && s.proc.sessions[s.g.index] == s {
		s.proc.sessions[s.g.index] = nil
	}
}

// run is the life of a partition while it is assigned, like the session and group of package stream.
func (c *claim) run() {
	s := c.session
	defer func() {
		s.working = remove(s.working, c)
		s.ended()
	}()
	c.work(c.check)
}

// consumer is a partition that is followed: its poll loop and its worker, for processors and readers.
type consumer struct {
	w         *world
	topic     string
	partition int32
	ctx       context.Context
	actor     *actor
	stream    *stream.Partition
	open      bool           // can be polled
	at        kafka.Position // the client's position
}

func (c *consumer) name() string { return fmt.Sprintf("%s/%d", c.topic, c.partition) }

// work has the worker take steps until ctx ends, and calls check after each.
func (c *consumer) work(check func()) {
	defer func() { c.open = false }()
	defer c.stream.Close() // with the local state
	c.stream.Step(c.ctx)   // opens
	c.open = true
	for c.ctx.Err() == nil {
		worked := c.stream.Step(c.ctx)
		check()
		c.w.rest(!worked)
	}
}

// poll is a turn of the poll loop, possibly while the worker is busy. batches returns how many batches to fetch.
func (c *consumer) poll(batches func() int) {
	if !c.open {
		return
	}
	fetch, moved := c.stream.Flow()
	if moved != nil {
		c.at = *moved
	}
	if !fetch {
		return
	}
	l := c.w.kafka.log(c.topic, c.partition)
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.Partition = c.partition
	switch end := l.epochEnd(c.at.Epoch); {
	case end >= 0 && end < c.at.Offset:
		c.stream.Deliver(&kgo.FetchPartition{Partition: c.partition, Err: &kgo.ErrDataLoss{
			Topic: c.topic, Partition: c.partition, ConsumedTo: c.at.Offset, ResetTo: end}})
		return
	case c.at.Offset < l.start || c.at.Offset > l.end():
		rp.ErrorCode = 1 // OFFSET_OUT_OF_RANGE
	default:
		l.fetch(c.at.Offset, batches(), true, &rp)
	}
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: c.at.Offset, IsolationLevel: kgo.ReadCommitted(), KeepControlRecords: true,
		Topic: c.topic, Partition: c.partition,
	}, &rp, nil, nil)
	if next == c.at.Offset && fp.Err == nil {
		return
	}
	if next > c.at.Offset {
		c.at = kafka.Position{Offset: next, Epoch: l.entries[next-1].epoch}
	}
	c.stream.Deliver(&fp)
	c.actor.idle = false
}

func (c *claim) check() {
	w, st := c.w, c.stream.Status()
	c.tell(&st)
	if w.trace != nil && st.State != stream.StateRunning {
		w.note("%s", st)
	}
	if st.State != stream.StateParked || st.Action == "" || w.excused[c.name()] {
		return
	}
	if st.Cause == stream.CausePermission {
		return // rejected by Kafka, as can happen here; retried without an operator
	}
	if (c.missed || !c.owns()) && strings.Contains(st.Reason, "the position is not in the log any more") {
		return // a zombie that does not know yet that it was replaced
	}
	w.fail("%s parks without a cause: %s", c.name(), st)
}

func (c *claim) tell(st *stream.PartitionStatus) {
	w := c.w
	if !c.zombie && !c.owns() {
		c.zombie = true
		w.count("zombie: works on a partition that it no longer owns")
	}
	state := st.State
	if st.Action != "" {
		state = "parked until repaired"
	}
	if state == c.state {
		return
	}
	if c.state = state; state != stream.StateRunning && state != stream.StateStarting {
		w.count("partition: " + state)
	}
}
