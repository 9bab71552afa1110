package testkit

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/lovoo/goka/storage"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Table is the topic that the logs here are of.
const Table = "group-table"

// Contents returns all pairs of a store as "key=value".
func Contents(t testing.TB, s interface {
	Iterator() (storage.Iterator, error)
}) []string {
	it, err := s.Iterator()
	require.NoError(t, err)
	defer it.Release()
	var all []string
	for it.Next() {
		v, err := it.Value()
		require.NoError(t, err)
		all = append(all, string(it.Key())+"="+string(v))
	}
	require.NoError(t, it.Err())
	return all
}

// LogShapes are the ends that a state Table's log can have. Reading up to the last
// data record, or waiting for the high watermark, goes wrong with some of them.
var LogShapes = map[string]struct {
	Write func(c *Cluster)
	Want  []string
}{
	"empty": {func(c *Cluster) {}, nil},
	"plain records": {func(c *Cluster) {
		c.Produce(Record(Table, 0, "a", "1"), Record(Table, 0, "b", "1"), Record(Table, 0, "a", "2"))
	}, []string{"a=2", "b=1"}},
	"a deleted key": {func(c *Cluster) {
		c.Produce(Record(Table, 0, "a", "1"), Record(Table, 0, "b", "1"), &kgo.Record{Topic: Table, Key: []byte("a")})
	}, []string{"b=1"}},
	"a commit marker at the end": {func(c *Cluster) {
		c.Transact("t", Commit(), Record(Table, 0, "a", "1"))
		c.Transact("t", Commit(), Record(Table, 0, "b", "1"))
	}, []string{"a=1", "b=1"}},
	"an aborted transaction at the end": {func(c *Cluster) {
		c.Transact("t", Commit(), Record(Table, 0, "a", "1"))
		c.Transact("t", Abort(), Record(Table, 0, "a", "2"), Record(Table, 0, "b", "2"))
	}, []string{"a=1"}},
	"nothing but aborted ones": {func(c *Cluster) {
		c.Transact("t", Abort(), Record(Table, 0, "a", "2"))
		c.Transact("t", Abort(), Record(Table, 0, "a", "3"))
	}, nil},
	"an open transaction at the end": {func(c *Cluster) {
		c.Transact("t", Commit(), Record(Table, 0, "a", "1"))
		c.Transact("u", nil, Record(Table, 0, "a", "2"))
	}, []string{"a=1"}},
	"committed behind an open one": {func(c *Cluster) {
		c.Transact("u", nil, Record(Table, 0, "a", "2"))
		c.Transact("t", Commit(), Record(Table, 0, "a", "1"))
	}, nil},
	"the head deleted": {func(c *Cluster) {
		c.Produce(Records(Table, 0, 0, 5)...)
		c.Produce(Record(Table, 0, "z", "1"))
		require.NoError(c.t, c.DeleteRecords(Table, 0, 5))
	}, []string{"z=1"}},
	"all deleted": {func(c *Cluster) {
		c.Transact("t", Commit(), Records(Table, 0, 0, 5)...)
		require.NoError(c.t, c.DeleteRecords(Table, 0, -1))
	}, nil},
}

// StaleLeader answers the next plain fetches of a table's partition 0 like a new leader whose high
// watermark is behind (KIP-207): with what is below upTo, as if the log ended there.
type StaleLeader struct {
	Answers atomic.Int64 // how many are still to come
	upTo    int64
	batches []byte
}

// StaleLeader has the broker answer so.
func (c *Cluster) StaleLeader(upTo, answers int64) *StaleLeader {
	s := &StaleLeader{upTo: upTo}
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, 1, 1<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = Table, c.TopicInfo(Table).TopicID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.FetchOffset, rp.PartitionMaxBytes = c.PartitionInfo(Table, 0).LogStartOffset, req.MaxBytes
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	whole, err := req.RequestWith(Context(c.t), c.Client())
	require.NoError(c.t, err)
	s.batches = whole.Topics[0].Partitions[0].RecordBatches
	s.Answers.Store(answers)
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if f := req.(*kmsg.FetchRequest); f.SessionEpoch == -1 && s.Answers.Add(-1) >= 0 {
			return s.answer(f), nil, true
		}
		return nil, nil, false
	})
	return s
}

func (s *StaleLeader) answer(req *kmsg.FetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = s.upTo, s.upTo, 0
	for b := s.batches; len(b) > 0; {
		size := 12 + binary.BigEndian.Uint32(b[8:])
		next := int64(binary.BigEndian.Uint64(b)) + int64(binary.BigEndian.Uint32(b[23:])) + 1
		if next > req.Topics[0].Partitions[0].FetchOffset && next <= s.upTo {
			rp.RecordBatches = append(rp.RecordBatches, b[:size]...)
		}
		b = b[size:]
	}
	rt := kmsg.NewFetchResponseTopic()
	rt.Topic, rt.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
	rt.Partitions = append(rt.Partitions, rp)
	resp.Topics = append(resp.Topics, rt)
	return resp
}

// StaleShapes are logs of which a new leader shows the first record only, or none.
var StaleShapes = map[string]struct {
	Write func(c *Cluster)
	Want  []string
}{
	"records": {func(c *Cluster) {
		c.Produce(Record(Table, 0, "a", "2"))
		c.Produce(Record(Table, 0, "b", "2"))
	}, []string{"a=2", "b=2"}},
	"commit markers at the end": {func(c *Cluster) {
		c.Transact("t", Commit(), Record(Table, 0, "a", "2"))
		c.Transact("t", Commit(), Record(Table, 0, "b", "2"))
	}, []string{"a=2", "b=2"}},
	"an aborted transaction at the end": {func(c *Cluster) {
		c.Transact("t", Commit(), Record(Table, 0, "a", "2"))
		c.Transact("t", Abort(), Record(Table, 0, "b", "2"))
	}, []string{"a=2"}},
	"nothing but aborted ones": {func(c *Cluster) {
		c.Transact("t", Abort(), Record(Table, 0, "b", "2"))
		c.Transact("t", Abort(), Record(Table, 0, "b", "3"))
	}, []string{"a=1"}},
	"an open transaction at the end": {func(c *Cluster) {
		c.Transact("t", Commit(), Record(Table, 0, "a", "2"))
		c.Transact("u", nil, Record(Table, 0, "a", "3"))
	}, []string{"a=2"}},
}
