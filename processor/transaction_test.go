package processor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/processor"
	"kudos/schema"
)

// mixedBatch has records of all kinds, for partition 0: events, one to forward to partition 1, and an invalid one.
func mixedBatch(user uint64) []*kgo.Record {
	return []*kgo.Record{
		record(like(0, user)),
		{Key: fmt.Append(nil, postIn(1)), Value: fmt.Appendf(nil, `{"user_id":%d,"action":"LIKE","time_ms":5}`, user)},
		{Key: []byte("x"), Value: []byte("poison")},
		record(like(0, user+1)),
	}
}

// seen counts the records of all topics; topics without records are left out.
func (s *system) seen() map[string]int {
	n := map[string]int{}
	for _, topic := range schema.Topics(partitions, 1) {
		for p := range topic.Partitions {
			if records := s.Records(topic.Name, p); len(records) > 0 {
				n[topic.Name] += len(records)
			}
		}
	}
	return n
}

// folded returns the group's committed offset in likes/0, or -1.
func (s *system) folded() int64 {
	offsets, err := s.adm.FetchOffsets(s.t.Context(), schema.GroupFold)
	require.NoError(s.t, err)
	o, ok := offsets.Lookup(schema.TopicLikes, 0)
	if !ok {
		return -1
	}
	return o.At
}

func TestABatchIsOneTransaction(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]ending{
		"committed":                        goOn,
		"lost before it was committed":     cut,
		"lost after it was committed":      doneAndCut,
		"committed but reported as failed": doneAndNo,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			s.produce(mixedBatch(1)...)
			p := s.run()
			s.waitDrained()
			before, offset := s.seen(), s.folded()
			require.Equal(t, map[string]int{schema.TopicLikes: 5, schema.TopicState: before[schema.TopicState],
				schema.TopicUpdates: before[schema.TopicUpdates], schema.TopicCounts: before[schema.TopicCounts],
				schema.TopicDLT: 1}, before)

			h := s.holdCommit(0)
			s.produce(mixedBatch(10)...)
			h.wait()
			before[schema.TopicLikes] += 4 // what was produced just now
			require.Equal(t, before, s.seen(), "records that readers of committed data see before the commit")
			require.Equal(t, offset, s.folded(), "committed offset before the commit")
			// 2 pairs, counts, progress; 1 post, progress
			for topic, more := range map[string]int64{schema.TopicState: 4, schema.TopicUpdates: 2,
				schema.TopicCounts: 2, schema.TopicDLT: 1} {
				info := s.Broker.PartitionInfo(topic, 0)
				require.Equal(t, info.LastStableOffset+more, info.HighWatermark,
					"records of the open transaction in %s", topic)
			}
			info := s.Broker.PartitionInfo(schema.TopicLikes, 1)
			require.Equal(t, info.LastStableOffset+1, info.HighWatermark, "forwarded within the transaction")

			h.release(how)
			s.waitExact()
			after := s.seen()
			require.Equal(t, 2*5, after[schema.TopicLikes], "one event of each batch is forwarded")
			require.Equal(t, 2, after[schema.TopicDLT])
			require.Equal(t, offset+4, s.folded())
			p.waitReady()
		})
	}
}

// Whichever step of a transaction fails, once or a few times: the batch is repeated, and nothing remains of the failed
// attempt. (A store written before the commit would take the second attempt for a repetition, and lose the counts.)
func TestFailedStepLeavesNoTrace(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	p := s.run()
	s.produce(likes(1, 3)...)
	s.waitDrained()
	user := uint64(100)
	for _, c := range []struct {
		key   kmsg.Key
		topic string // of a Produce
		err   *kerr.Error
		count int
	}{
		{kmsg.TxnOffsetCommit, "", kerr.UnknownServerError, 0},
		{kmsg.TxnOffsetCommit, "", kerr.ConcurrentTransactions, 3},
		{kmsg.TxnOffsetCommit, "", kerr.NotCoordinator, 2},
		{kmsg.TxnOffsetCommit, "", kerr.RequestTimedOut, 0}, // the broker handles it nevertheless
		{kmsg.TxnOffsetCommit, "", kerr.InvalidCommitOffsetSize, 2},
		{kmsg.EndTxn, "", kerr.UnknownServerError, 0},
		{kmsg.EndTxn, "", kerr.InvalidTxnState, 2},
		{kmsg.EndTxn, "", kerr.NotCoordinator, 0},
		{kmsg.EndTxn, "", kerr.ConcurrentTransactions, 0},
		{kmsg.Produce, schema.TopicUpdates, kerr.UnknownServerError, 0},
		{kmsg.Produce, schema.TopicUpdates, kerr.NotEnoughReplicasAfterAppend, 0}, // the broker handles it nevertheless
		{kmsg.Produce, schema.TopicState, kerr.InvalidRecord, 0},
		{kmsg.Produce, schema.TopicState, kerr.NotEnoughReplicas, 0},
		{kmsg.Produce, schema.TopicDLT, kerr.MessageTooLarge, 0},
		{kmsg.Produce, schema.TopicLikes, kerr.PolicyViolation, 0},
	} {
		f := kfake.Fault{Keys: []kmsg.Key{c.key}, Err: c.err, Count: c.count}
		switch c.topic {
		case "":
			f.When = func(r kmsg.Request) bool {
				offset, ok := r.(*kmsg.TxnOffsetCommitRequest)
				if ok {
					return ofFold(0, offset.TransactionalID)
				}
				return ofFold(0, r.(*kmsg.EndTxnRequest).TransactionalID)
			}
		case schema.TopicLikes: // a forwarded event
			f.Partitions = []int32{1}
		default:
			f.Partitions = []int32{0}
		}
		what := fmt.Sprintf("%v of %s fails with %s", f.Keys, c.topic, c.err.Message)
		f.Topic = c.topic
		if c.topic != "" { // produced by the fold, not by the test
			f.When = func(r kmsg.Request) bool { return r.(*kmsg.ProduceRequest).TransactionID != nil }
		}
		user += 10
		h := s.Broker.Fault(f)
		s.produce(mixedBatch(user)...)
		s.produce(likes(user, 2)...)
		require.NoError(t, h.Wait(testkit.Context(t), max(1, f.Count)), "%s: waiting for the fault", what)
		s.waitExact(p)
	}
	// Repeated work is counted once.
	p.waitIdle()
	require.Equal(t, s.seen()[schema.TopicLikes], p.metric("kudos_events_folded_total"))
	// The local state matches the log, too: another processor starts with it.
	p.stop()
	s.produce(likes(5000, 2)...)
	s.run()
	s.waitExact()
}

// A fenced worker gives up at once and does not return by itself: initializing again would fence the rightful owner.
func TestFencedPartitionWaitsForANewAssignment(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	p := s.run()
	s.produce(likes(1, 1)...)
	s.waitDrained()
	p.waitReady()
	// Another client initializes the transactional ids.
	other, err := s.Options.NewFencingClient(t.Context(), s.log, schema.FoldTransactionalIDs(2))
	require.NoError(t, err)
	defer other.Close()
	inits := s.Broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Observe: true, Count: -1,
		When: func(r kmsg.Request) bool {
			id := r.(*kmsg.InitProducerIDRequest).TransactionalID
			return id != nil && ofFold(2, *id)
		}})
	s.produce(likes(2, 1)...)
	p.waitParked("likes/2 fenced", "this process lost the partition")
	s.produce(likes(3, 1)...)
	s.waitLikes(3, 0, 1, 3)
	require.Equal(t, int64(1), s.counts()[postIn(2)].Likes)
	require.Zero(t, inits.Hits(), "initializations after the fencing")
	require.Equal(t, 1, p.metric("kudos_transactions_failed_total", schema.GroupFold, "fenced"))
	// A second processor makes the group assign the partitions again.
	s.run()
	s.waitExact()
	require.Equal(t, int64(3), s.counts()[postIn(2)].Likes)
}

// Without work there are no transactions, nothing is written anywhere, and there is no lag.
func TestIdleSystemIsQuiet(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	p := s.run(func(o *processor.Options) { o.SessionTimeout = 10 * time.Second }) // a heartbeat every 2 s
	// one of them is forwarded: a commit marker ends likes/1
	s.produce(mixedBatch(1)...)
	s.produce(likes(10, 5)...)
	s.waitDrained()
	p.waitReady()
	p.waitIdle()
	s.waitFor("the offsets of like-count to be committed up to the end", func() (bool, any) {
		offsets, err := s.adm.FetchOffsets(t.Context(), schema.GroupApply)
		require.NoError(t, err)
		for partition, info := range s.Broker.PartitionInfos(schema.TopicUpdates) {
			if o, ok := offsets.Lookup(schema.TopicUpdates, int32(partition)); !ok || o.At != info.LastStableOffset {
				return false, offsets
			}
		}
		return true, nil
	})

	work := s.Broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce, kmsg.EndTxn, kmsg.TxnOffsetCommit,
		kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.OffsetCommit, kmsg.JoinGroup}, Observe: true, Count: -1})
	transactions, applies := p.metric("kudos_fold_transactions_total"), p.metric("kudos_mysql_transactions_total")
	var beats []*kfake.FaultHandle
	for _, group := range []string{schema.GroupFold, schema.GroupApply} {
		beat := kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: group, Observe: true, Count: -1}
		beats = append(beats, s.Broker.Fault(beat))
	}
	s.waitFor("some heartbeats of each group", func() (bool, any) {
		return beats[0].Hits() >= 2 && beats[1].Hits() >= 2, []int{beats[0].Hits(), beats[1].Hits()}
	})
	require.Zero(t, work.Hits(), "requests that write")
	require.Equal(t, transactions, p.metric("kudos_fold_transactions_total"))
	require.Equal(t, applies, p.metric("kudos_mysql_transactions_total"))
	require.Zero(t, p.Lag())
	require.NoError(t, p.Ready())
}
