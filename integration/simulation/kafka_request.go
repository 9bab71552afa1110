package simulation

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Request handles exactly the requests that the workers send.
func (c *client) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
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

func (k *cluster) metadata(req *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	resp.ClusterID = &k.id
	for _, rt := range req.Topics {
		t := k.topics[*rt.Topic]
		mt := kmsg.NewMetadataResponseTopic()
		mt.Topic, mt.TopicID = &t.name, t.id
		for p := range t.parts {
			mp := kmsg.NewMetadataResponseTopicPartition()
			mp.Partition, mp.Leader, mp.Replicas = int32(p), 1, []int32{1}
			mt.Partitions = append(mt.Partitions, mp)
		}
		resp.Topics = append(resp.Topics, mt)
	}
	return resp
}

func (k *cluster) listOffsets(req *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	rt := &req.Topics[0]
	l := k.log(rt.Topic, rt.Partitions[0].Partition)
	rp := kmsg.NewListOffsetsResponseTopicPartition()
	rp.Partition = rt.Partitions[0].Partition
	switch at := rt.Partitions[0].Timestamp; {
	case at == -2:
		rp.Offset = l.start
	case k.w.happens("kafka: end offset not available", 20):
		rp.ErrorCode = kerr.OffsetNotAvailable.Code
	case req.IsolationLevel == 1:
		rp.Offset = l.stable()
	default:
		rp.Offset = l.end()
	}
	resp.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: rt.Topic, Partitions: only(rp)}}
	return resp
}

func (k *cluster) epochEnds(req *kmsg.OffsetForLeaderEpochRequest) *kmsg.OffsetForLeaderEpochResponse {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	rt := &req.Topics[0]
	rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	rp.Partition = rt.Partitions[0].Partition
	rp.EndOffset = k.log(rt.Topic, rp.Partition).epochEnd(rt.Partitions[0].LeaderEpoch)
	resp.Topics = []kmsg.OffsetForLeaderEpochResponseTopic{{Topic: rt.Topic, Partitions: only(rp)}}
	return resp
}

func (k *cluster) offsetFetch(req *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	rg := &req.Groups[0]
	p := rg.Topics[0].Partitions[0]
	rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	rp.Partition, rp.Offset = p, k.committed[p].offset
	if req.RequireStable && k.unstable(p) {
		rp.ErrorCode = kerr.UnstableOffsetCommit.Code
		k.materialize(p) // visible at the next try
	}
	t := kmsg.OffsetFetchResponseGroupTopic{Topic: rg.Topics[0].Topic, Partitions: only(rp)}
	resp.Groups = []kmsg.OffsetFetchResponseGroup{{Group: rg.Group, Topics: only(t)}}
	return resp
}

func (k *cluster) fetch(req *kmsg.FetchRequest) *kmsg.FetchResponse {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	rt := &req.Topics[0]
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.Partition = rt.Partitions[0].Partition
	l := k.log(rt.Topic, rp.Partition)
	switch from := rt.Partitions[0].FetchOffset; {
	case from < l.start || from > l.end():
		rp.ErrorCode = kerr.OffsetOutOfRange.Code
	case k.w.chance("kafka: fetch rejected", 20):
		rp.ErrorCode = kerr.NotLeaderForPartition.Code
	case from < l.stable() && k.w.chance("kafka: stale end", 50):
		// A new leader's high watermark may lag behind for a moment; it serves only what is below.
		rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = from, from, l.start
		k.w.count("kafka: high watermark behind")
	default:
		n := 1000
		if k.w.chance("kafka: fetch of few batches", 500) {
			n = k.w.amount(func() int { return 1 + k.w.rng.IntN(3) })
		}
		l.fetch(from, n, req.IsolationLevel == 1, &rp)
	}
	resp.Topics = []kmsg.FetchResponseTopic{{Topic: rt.Topic, TopicID: rt.TopicID, Partitions: only(rp)}}
	return resp
}

// txnOffsetCommit checks producer and member, as the group coordinator does.
func (k *cluster) txnOffsetCommit(req *kmsg.TxnOffsetCommitRequest) *kmsg.TxnOffsetCommitResponse {
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	rt := &req.Topics[0]
	rp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
	rp.Partition = rt.Partitions[0].Partition
	co := k.coordinator(req.TransactionalID)
	if err := k.allowCommit(co, req); err != nil {
		rp.ErrorCode = err.Code
	} else {
		k.join(co).offset[rp.Partition] = rt.Partitions[0].Offset
	}
	resp.Topics = []kmsg.TxnOffsetCommitResponseTopic{{Topic: rt.Topic, Partitions: only(rp)}}
	return resp
}

func (k *cluster) allowCommit(co *coordinator, req *kmsg.TxnOffsetCommitRequest) *kerr.Error {
	switch {
	case k.w.chance("kafka: coordinator loading", 30):
		return kerr.CoordinatorLoadInProgress
	case k.fence(co, req.ProducerID, req.ProducerEpoch) != nil:
		return kerr.InvalidProducerEpoch
	case co.txn != nil && co.txn.decided(), k.w.chance("kafka: concurrent transactions", 30):
		return kerr.ConcurrentTransactions
	}
	return k.w.group(req.Group).member(req.MemberID, req.Generation)
}
