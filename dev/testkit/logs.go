package testkit

import (
	"encoding/binary"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Table is the topic of the logs in this file.
const Table = "group-table"

// LogShape is a log, given as the steps that write it, and the table that a reader must build from it.
//
//	plain a=1 b    records without a transaction: a value, and a tombstone
//	commit a=1     a committed transaction; likewise abort, and open, which does not end
//	delete 5       deletes the records before this offset; -1: all
type LogShape struct {
	steps string // separated by "; "
	Want  []string
}

// Write writes the log of Table's partition 0.
func (s LogShape) Write(c *Cluster) {
	for step := range strings.SplitSeq(s.steps, "; ") {
		verb, rest, _ := strings.Cut(step, " ")
		var records []*kgo.Record
		for word := range strings.FieldsSeq(rest) {
			key, value, found := strings.Cut(word, "=")
			r := Record(Table, 0, key, value)
			if !found {
				r.Value = nil
			}
			records = append(records, r)
		}
		switch verb {
		case "plain":
			c.Produce(records...)
		case "commit":
			c.Transact("t", Commit(), records...)
		case "abort":
			c.Transact("t", Abort(), records...)
		case "open":
			c.Transact("u", nil, records...)
		case "delete":
			offset, err := strconv.ParseInt(rest, 10, 64)
			require.NoError(c.t, err)
			require.NoError(c.t, c.DeleteRecords(Table, 0, offset))
		}
	}
}

// LogShapes are ends of a state table's log. Reading to the last data record or the high watermark fails with some.
var LogShapes = map[string]LogShape{
	"empty":                              {"", nil},
	"plain records":                      {"plain a=1 b=1 a=2", []string{"a=2", "b=1"}},
	"a deleted key":                      {"plain a=1 b=1 a", []string{"b=1"}},
	"a commit marker at the end":         {"commit a=1; commit b=1", []string{"a=1", "b=1"}},
	"an aborted transaction at the end":  {"commit a=1; abort a=2 b=2", []string{"a=1"}},
	"only aborted transactions":          {"abort a=2; abort a=3", nil},
	"an open transaction at the end":     {"commit a=1; open a=2", []string{"a=1"}},
	"a commit after an open transaction": {"open a=2; commit a=1", nil},
	"the start deleted":                  {"plain k0=0 k1=1 k2=2 k3=3 k4=4; plain z=1; delete 5", []string{"z=1"}},
	"everything deleted":                 {"commit k0=0 k1=1 k2=2 k3=3 k4=4; delete -1", nil},
}

// StaleShapes are logs of which a new leader shows only the first record, or none.
var StaleShapes = map[string]LogShape{
	"records":                           {"plain a=2; plain b=2", []string{"a=2", "b=2"}},
	"commit markers at the end":         {"commit a=2; commit b=2", []string{"a=2", "b=2"}},
	"an aborted transaction at the end": {"commit a=2; abort b=2", []string{"a=2"}},
	"only aborted transactions":         {"abort b=2; abort b=3", []string{"a=1"}},
	"an open transaction at the end":    {"commit a=2; open a=3", []string{"a=2"}},
}

// StaleLeader answers the next plain fetches of Table's partition 0 like a new leader whose high watermark is behind
// (KIP-207): the log seems to end at upTo.
type StaleLeader struct {
	Answers atomic.Int64 // how many are left
	upTo    int64
	batches []byte
}

// StaleLeader makes the broker give such answers.
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
