package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
)

// This file is a model of a Kafka cluster: its requests and transactions.

type cluster struct {
	w            *world
	id           string
	topics       map[string]*topic
	logs         []*partitionLog // of all topics, in order
	coordinators []*coordinator
	committed    []committed // offsets of the fold's group, by partition
	pids         int64
	written      int64    // offset commits
	late         []func() // requests in flight whose sender has given up on them
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

// committed is a group's offset in a partition. Committed offsets may become visible late; the last written one stays.
type committed struct {
	offset
	next []offset // committed, but not visible yet
}

type offset struct{ at, written int64 } // written is when, in numbers; at is -1 if there is none

// lastEpoch is far lower than in Kafka: a transactional id then gets another producer id.
const lastEpoch = 12

func newCluster(w *world, partitions int32) *cluster {
	c := &cluster{w: w, id: "a-cluster", topics: map[string]*topic{}, pids: 100}
	for i, name := range []string{schema.TopicLikes, schema.TopicState, schema.TopicUpdates, schema.TopicDLT,
		schema.TopicCounts} {
		t := &topic{name: name, id: schema.TopicID{0xa0, byte(i)}}
		for range partitions {
			l := newLog(name, len(t.parts))
			t.parts = append(t.parts, l)
			c.logs = append(c.logs, l)
		}
		c.topics[name] = t
	}
	for p := range partitions {
		for _, id := range schema.FoldTransactionalIDs(p) {
			c.coordinator(id)
		}
		c.committed = append(c.committed, committed{offset: offset{at: -1}})
	}
	return c
}

func (c *cluster) log(topic string, p int32) *partitionLog { return c.topics[topic].parts[p] }

func (c *cluster) named(name string) *partitionLog {
	return find(c.logs, func(l *partitionLog) bool { return l.name == name })
}

func (c *cluster) coordinatorNamed(id string) *coordinator {
	return find(c.coordinators, func(co *coordinator) bool { return co.id == id })
}

func (c *cluster) coordinator(id string) *coordinator {
	co := c.coordinatorNamed(id)
	if co == nil {
		co = &coordinator{id: id, pid: -1}
		c.coordinators = append(c.coordinators, co)
	}
	return co
}

// init handles InitProducerId: it aborts the open transaction of an earlier owner.
func (c *cluster) init(co *coordinator) {
	if co.txn != nil && !co.txn.decided {
		c.w.count("kafka: open transaction fenced")
		c.decide(co, false)
	}
	c.mark(co)
	c.bump(co)
}

func (c *cluster) bump(co *coordinator) {
	if co.epoch++; co.epoch > lastEpoch {
		c.w.tally["kafka: epochs used up"]++
		co.pid = -1
	}
	if co.pid < 0 {
		c.pids++
		co.pid, co.epoch = c.pids, 0
	}
}

// expire forgets a transactional id that was not used for long.
func (c *cluster) expire(co *coordinator) bool {
	if co.txn != nil {
		return false
	}
	co.pid = -1
	return true
}

func (c *cluster) join(co *coordinator) *txn {
	if co.txn == nil {
		if slices.ContainsFunc(c.coordinators, func(other *coordinator) bool {
			return other.txn != nil && other.txn.decided && strings.HasPrefix(co.id, other.id)
		}) {
			c.w.tally["kafka: transaction begins while the one before completes"]++
		}
		co.txn = &txn{pid: co.pid, first: map[*partitionLog]int64{}, offset: map[int32]offset{}, began: now()}
	}
	return co.txn
}

// decide commits or aborts the open transaction; its markers are still to be written.
func (c *cluster) decide(co *coordinator, commit bool) {
	if commit {
		c.w.tally["kafka: transaction committed"]++
		c.checkTransaction(co)
	}
	co.txn.decided, co.txn.commits = true, commit
	c.bump(co) // transaction.version 2: each transaction has its own epoch
	c.w.note("%s: transaction decided, commit %v", co.id, commit)
}

func (c *cluster) mark(co *coordinator) bool {
	t := co.txn
	if t == nil || !t.decided {
		return false
	}
	t.finish(c.logs)
	co.txn = nil
	if t.commits {
		for p, o := range t.offset {
			c.committed[p].next = append(c.committed[p].next, o)
			if !c.w.chance("kafka: offset late", 300) {
				c.materialize(p)
			}
		}
	}
	c.w.note("%s: markers written", co.id)
	return true
}

func (c *cluster) materialize(p int32) bool {
	have := &c.committed[p]
	any := len(have.next) > 0
	for _, o := range have.next {
		if o.written > have.written {
			have.offset = o
		}
	}
	have.next = nil
	return any
}

// unstable reports whether a transaction that is not finished may change a committed offset.
func (c *cluster) unstable(p int32) bool {
	return len(c.committed[p].next) > 0 || slices.ContainsFunc(c.coordinators, func(co *coordinator) bool {
		if co.txn == nil {
			return false
		}
		_, sent := co.txn.offset[p]
		return sent
	})
}

func (c *cluster) timeOut(co *coordinator) bool {
	if co.txn == nil || co.txn.decided {
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

func (c *cluster) fence(co *coordinator, pid int64, epoch int16) *kerr.Error {
	switch {
	case pid == co.pid && epoch == co.epoch:
		return nil
	case co.pid < 0:
		c.w.count("kafka: transactional id expired in use")
		return kerr.InvalidProducerIDMapping
	}
	c.w.count("zombie: rejected for its producer epoch")
	return kerr.InvalidProducerEpoch
}

// Request handles exactly the requests that the workers send.
func (c *client) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if _, ok := req.(*kmsg.ApiVersionsRequest); ok { // a client knows them from connecting
		return &kmsg.ApiVersionsResponse{FinalizedFeatures: []kmsg.ApiVersionsResponseFinalizedFeature{
			{Name: "transaction.version", MaxVersionLevel: 2}}}, nil
	}
	what := kmsg.NameForKey(req.Key())
	if err := c.sent(ctx, what); err != nil {
		return nil, err
	}
	resp := c.handle(req)
	if err := c.answered(what); err != nil {
		return nil, err
	}
	return resp, nil
}

func (c *client) handle(kreq kmsg.Request) kmsg.Response {
	k := c.w.kafka
	switch req := kreq.(type) {
	case *kmsg.MetadataRequest:
		return k.metadata(req)
	case *kmsg.ListOffsetsRequest:
		return k.listOffsets(req)
	case *kmsg.OffsetForLeaderEpochRequest:
		return k.epochEnds(req)
	case *kmsg.OffsetFetchRequest:
		return k.offsetFetch(req)
	case *kmsg.FetchRequest:
		return k.fetch(req)
	case *kmsg.HeartbeatRequest:
		return c.w.heartbeat(req)
	case *kmsg.TxnOffsetCommitRequest:
		return k.txnOffsetCommit(req)
	}
	panic(fmt.Sprintf("the model of Kafka does not support %T", kreq))
}

func (c *cluster) metadata(req *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	resp.ClusterID = &c.id
	for _, rt := range req.Topics {
		t := c.topics[*rt.Topic]
		mt := kmsg.NewMetadataResponseTopic()
		mt.Topic, mt.TopicID = &t.name, t.id
		for p := range t.parts {
			mp := kmsg.NewMetadataResponseTopicPartition()
			mp.Partition, mp.Leader, mp.Replicas = int32(p), 1, []int32{1}
			mp.LeaderEpoch = t.parts[p].leaderEpoch()
			mt.Partitions = append(mt.Partitions, mp)
		}
		resp.Topics = append(resp.Topics, mt)
	}
	return resp
}

func (c *cluster) listOffsets(req *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	resp, rt := req.ResponseKind().(*kmsg.ListOffsetsResponse), &req.Topics[0]
	l := c.log(rt.Topic, rt.Partitions[0].Partition)
	rp := kmsg.NewListOffsetsResponseTopicPartition()
	rp.Partition = rt.Partitions[0].Partition
	switch at := rt.Partitions[0].Timestamp; {
	case at == -2:
		rp.Offset = l.start
	case c.w.happens("kafka: end offset not available", 20):
		rp.ErrorCode = kerr.OffsetNotAvailable.Code
	case req.IsolationLevel == 1:
		rp.Offset = l.stable()
	default:
		rp.Offset = l.end()
	}
	resp.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: rt.Topic, Partitions: only(rp)}}
	return resp
}

func (c *cluster) epochEnds(req *kmsg.OffsetForLeaderEpochRequest) *kmsg.OffsetForLeaderEpochResponse {
	resp, rt := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse), &req.Topics[0]
	rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	rp.Partition = rt.Partitions[0].Partition
	rp.EndOffset = c.log(rt.Topic, rp.Partition).epochEnd(rt.Partitions[0].LeaderEpoch)
	resp.Topics = []kmsg.OffsetForLeaderEpochResponseTopic{{Topic: rt.Topic, Partitions: only(rp)}}
	return resp
}

func (c *cluster) offsetFetch(req *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse {
	resp, rg := req.ResponseKind().(*kmsg.OffsetFetchResponse), &req.Groups[0]
	p := rg.Topics[0].Partitions[0]
	rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	rp.Partition, rp.Offset = p, c.committed[p].at
	if req.RequireStable && c.unstable(p) {
		rp.ErrorCode = kerr.UnstableOffsetCommit.Code
		c.materialize(p) // visible at the next try
	}
	t := kmsg.OffsetFetchResponseGroupTopic{Topic: rg.Topics[0].Topic, Partitions: only(rp)}
	resp.Groups = []kmsg.OffsetFetchResponseGroup{{Group: rg.Group, Topics: only(t)}}
	return resp
}

func (c *cluster) fetch(req *kmsg.FetchRequest) *kmsg.FetchResponse {
	resp, rt := req.ResponseKind().(*kmsg.FetchResponse), &req.Topics[0]
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.Partition = rt.Partitions[0].Partition
	l := c.log(rt.Topic, rp.Partition)
	switch from := rt.Partitions[0].FetchOffset; {
	case from < l.start || from > l.end():
		rp.ErrorCode = kerr.OffsetOutOfRange.Code
	case c.w.chance("kafka: fetch rejected", 20):
		rp.ErrorCode = kerr.NotLeaderForPartition.Code
	case from < l.stable() && c.w.chance("kafka: stale end", 50):
		// A new leader's high watermark may lag behind for a moment; it serves only what is below.
		rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = from, from, l.start
		c.w.count("kafka: high watermark behind")
	default:
		n := 1000
		if c.w.chance("kafka: fetch of few batches", 500) {
			n = c.w.amount(func() int { return 1 + c.w.random().IntN(3) })
		}
		l.fetch(from, n, req.IsolationLevel == 1, &rp)
	}
	resp.Topics = []kmsg.FetchResponseTopic{{Topic: rt.Topic, TopicID: rt.TopicID, Partitions: only(rp)}}
	return resp
}

// txnOffsetCommit checks producer and member, as the group coordinator does.
func (c *cluster) txnOffsetCommit(req *kmsg.TxnOffsetCommitRequest) *kmsg.TxnOffsetCommitResponse {
	resp, rt := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse), &req.Topics[0]
	rp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
	rp.Partition = rt.Partitions[0].Partition
	co := c.coordinator(req.TransactionalID)
	if err := c.allowCommit(co, req); err != nil {
		rp.ErrorCode = err.Code
	} else {
		c.written++
		c.join(co).offset[rp.Partition] = offset{rt.Partitions[0].Offset, c.written}
	}
	resp.Topics = []kmsg.TxnOffsetCommitResponseTopic{{Topic: rt.Topic, Partitions: only(rp)}}
	return resp
}

func (c *cluster) allowCommit(co *coordinator, req *kmsg.TxnOffsetCommitRequest) *kerr.Error {
	if c.w.chance("kafka: coordinator loading", 30) {
		return kerr.CoordinatorLoadInProgress
	}
	if err := c.fence(co, req.ProducerID, req.ProducerEpoch); err != nil {
		return err
	}
	switch {
	case co.txn != nil && co.txn.decided, c.w.chance("kafka: concurrent transactions", 30):
		return kerr.ConcurrentTransactions
	}
	if req.MemberID == "" && req.Generation < 0 {
		return nil // in a transaction, anybody may commit
	}
	return c.w.group(req.Group).member(req.MemberID, req.Generation)
}
