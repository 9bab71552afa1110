package simulation

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"kudos/schema"
)

type cluster struct {
	w            *world
	id           string
	topics       map[string]*topic
	logs         []*partitionLog // of all topics, in order
	coordinators []*coordinator
	committed    []committed // offsets of the fold's group, by partition
	pids         int64
	// late are requests in flight whose sender has given up on them.
	late []func()
}

type topic struct {
	name  string
	id    schema.TopicID
	parts []*partitionLog
}

type coordinator struct {
	id    string
	pid   int64
	epoch int16
	txn   *txn // open or waiting for its markers; nil: none
}

// committed is a group's offset in a partition. A committed offset may become visible late.
type committed struct {
	offset int64 // -1: none
	next   int64 // committed, but not visible yet; -1: none
}

func newCluster(w *world, partitions int32) *cluster {
	c := &cluster{w: w, id: "a-cluster", topics: map[string]*topic{}, pids: 100}
	for i, name := range []string{schema.TopicLikes, schema.TopicState, schema.TopicUpdates, schema.TopicDLT} {
		t := &topic{name: name, id: schema.TopicID{0xa0, byte(i)}}
		for range partitions {
			l := newLog(name, len(t.parts))
			t.parts = append(t.parts, l)
			c.logs = append(c.logs, l)
		}
		c.topics[name] = t
	}
	for p := range partitions {
		c.coordinator(schema.FoldTransactionalID(p))
		c.committed = append(c.committed, committed{-1, -1})
	}
	return c
}

func (c *cluster) log(topic string, p int32) *partitionLog { return c.topics[topic].parts[p] }

func (c *cluster) named(name string) *partitionLog {
	if i := slices.IndexFunc(c.logs, func(l *partitionLog) bool { return l.name == name }); i >= 0 {
		return c.logs[i]
	}
	return nil
}

func (c *cluster) coordinator(id string) *coordinator {
	for _, co := range c.coordinators {
		if co.id == id {
			return co
		}
	}
	co := &coordinator{id: id, pid: -1}
	c.coordinators = append(c.coordinators, co)
	return co
}

// init handles InitProducerId: it aborts the open transaction of an earlier owner.
func (c *cluster) init(co *coordinator) {
	if co.txn != nil && !co.txn.decided() {
		c.w.count("kafka: open transaction fenced")
		c.decide(co, false)
	}
	c.mark(co)
	if co.pid < 0 {
		c.pids++
		co.pid = c.pids
	}
	co.epoch++
}

func (c *cluster) join(co *coordinator) *txn {
	if co.txn == nil {
		co.txn = &txn{pid: co.pid, first: map[*partitionLog]int64{}, offset: map[int32]int64{}, began: now()}
	}
	return co.txn
}

// decide commits or aborts the open transaction; its markers are still to be written.
func (c *cluster) decide(co *coordinator, commit bool) {
	if commit {
		c.w.tally["kafka: transaction committed"]++
		c.checkTransaction(co)
		co.txn.state = txnCommitting
	} else {
		co.txn.state = txnAborting
	}
	co.epoch++ // transaction.version 2: each transaction has its own epoch
	c.w.note("%s: transaction decided, commit %v", co.id, commit)
}

func (c *cluster) mark(co *coordinator) bool {
	t := co.txn
	if t == nil || !t.decided() {
		return false
	}
	t.finish(c.logs)
	co.txn = nil
	if t.state == txnCommitted {
		for p, offset := range t.offset {
			c.committed[p].next = offset
			if !c.w.chance("kafka: offset late", 300) {
				c.materialize(p)
			}
		}
	}
	c.w.note("%s: markers written", co.id)
	return true
}

func (c *cluster) materialize(p int32) bool {
	if c.committed[p].next < 0 {
		return false
	}
	c.committed[p].offset, c.committed[p].next = c.committed[p].next, -1
	return true
}

// unstable reports whether a transaction that is not finished may change a committed offset.
func (c *cluster) unstable(p int32) bool {
	return c.committed[p].next >= 0 || slices.ContainsFunc(c.coordinators, func(co *coordinator) bool {
		if co.txn == nil {
			return false
		}
		_, sent := co.txn.offset[p]
		return sent
	})
}

func (c *cluster) timeOut(co *coordinator) bool {
	if co.txn == nil || co.txn.decided() {
		return false
	}
	c.decide(co, false)
	c.mark(co)
	return true
}

func (c *cluster) timeOutOld() {
	for _, co := range c.coordinators {
		if co.txn != nil && now()-co.txn.began > 31_000 {
			c.timeOut(co)
		}
	}
}

func (c *cluster) fence(co *coordinator, pid int64, epoch int16) error {
	if pid == co.pid && epoch == co.epoch {
		return nil
	}
	c.w.count("zombie: rejected for its producer epoch")
	return kerr.InvalidProducerEpoch
}
