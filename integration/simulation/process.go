package simulation

import (
	"context"
	"fmt"
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
}

type session struct {
	g          *group
	proc       *process
	member     string
	generation int32
	claims     []*claim
	ctx        context.Context
	cancel     context.CancelFunc
	working    int // claims that have not ended
}

type claim struct {
	session   *session
	partition int32
	actor     *actor
	stream    *stream.Partition
	open      bool           // can be polled
	at        kafka.Position // the client's position
	zombie    bool           // has worked after its membership was lost
	state     string         // at the last turn
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

func (g *group) begin(p *process, member string, partitions []int32) {
	s := &session{g: g, proc: p, member: member, generation: g.generation}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	g.members[member], p.sessions[g.index] = s, s
	newWorker := p.workers.Fold
	if g.name == schema.GroupApply {
		newWorker = p.workers.Count
	}
	options := g.w.options()
	for _, partition := range partitions {
		c := &claim{session: s, partition: partition}
		a := stream.Assignment{Topic: g.topic, Partition: partition,
			Member: kafka.Member{Group: g.name, ID: member, Generation: g.generation}}
		c.stream = stream.NewPartition(a, newWorker, &stream.ProcessorOptions{
			MaxBatch: options.MaxBatch, TickInterval: tickInterval, ParkInterval: options.ParkInterval,
			SessionTimeout: options.SessionTimeout, ShutdownTimeout: options.ShutdownTimeout,
		}, &client{w: g.w, proc: p}, func() { g.wanted = true }, g.w.log)
		c.actor = g.w.spawn(fmt.Sprintf("%s %s/%d", member, g.topic, partition), p.ref()+":"+c.name(), p, c.run)
		s.claims = append(s.claims, c)
	}
	s.working = len(s.claims)
	g.w.note("%s: generation %d, %s gets %v", g.name, g.generation, member, partitions)
}

// stop ends a session; work in flight is finished.
func (s *session) stop() {
	s.cancel()
	s.ended()
}

func (s *session) ended() {
	if s.working == 0 && s.ctx.Err() != nil && s.proc.sessions[s.g.index] == s {
		s.proc.sessions[s.g.index] = nil
	}
}

// run is the life of a partition in a session, like the session and group of package stream.
func (c *claim) run() {
	s := c.session
	defer func() {
		c.open = false
		s.working--
		s.ended()
	}()
	defer c.stream.Close() // with the local state
	c.stream.Step(s.ctx)   // opens
	c.open = true
	for s.ctx.Err() == nil {
		worked := c.stream.Step(s.ctx)
		c.check()
		s.g.w.rest(!worked)
	}
}

// poll is a turn of the poll loop, possibly while the worker is busy. A script may give the number of batches to fetch.
func (c *claim) poll(batches int) {
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
	l := c.session.g.w.kafka.log(c.session.g.topic, c.partition)
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.Partition = c.partition
	switch end := l.epochEnd(c.at.Epoch); {
	case end >= 0 && end < c.at.Offset:
		c.stream.Deliver(&kgo.FetchPartition{Partition: c.partition, Err: &kgo.ErrDataLoss{
			Topic: c.session.g.topic, Partition: c.partition, ConsumedTo: c.at.Offset, ResetTo: end}})
		return
	case c.at.Offset < l.start || c.at.Offset > l.end():
		rp.ErrorCode = 1 // OFFSET_OUT_OF_RANGE
	default:
		l.fetch(c.at.Offset, c.session.g.w.batches(batches), true, &rp)
	}
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: c.at.Offset, IsolationLevel: kgo.ReadCommitted(), KeepControlRecords: true,
		Topic: c.session.g.topic, Partition: c.partition,
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
	s, w, st := c.session, c.session.g.w, c.stream.Status()
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
	if s.g.member(s.member, s.generation) != nil &&
		strings.Contains(st.Reason, "the position is not in the log any more") {
		return // a zombie that does not know yet that it was replaced
	}
	w.fail("%s parks without a cause: %s", c.name(), st)
}

func (c *claim) tell(st *stream.PartitionStatus) {
	s, w := c.session, c.session.g.w
	if !c.zombie && s.g.member(s.member, s.generation) != nil {
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

func (c *claim) name() string { return fmt.Sprintf("%s/%d", c.session.g.topic, c.partition) }
