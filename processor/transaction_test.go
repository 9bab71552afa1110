package processor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
)

// mixedBatch has something of everything, for partition 0: events, one that is to be
// forwarded to partition 1, and poison.
func mixedBatch(user uint64) []*kgo.Record {
	return []*kgo.Record{
		record(like(0, user)),
		{Key: fmt.Append(nil, postIn(1)), Value: fmt.Appendf(nil, `{"user_id":%d,"action":"LIKE","time_ms":5}`, user)},
		{Key: []byte("x"), Value: []byte("poison")},
		record(like(0, user+1)),
	}
}

// seen counts the records of all topics; those that have none are left out.
func (t *tape) seen() map[string]int {
	n := map[string]int{}
	for _, topic := range schema.Topics(partitions, 1) {
		for _, records := range t.read(topic.Name) {
			if len(records) > 0 {
				n[topic.Name] += len(records)
			}
		}
	}
	return n
}

// folded is the group's committed offset in likes/0, or -1.
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
		"committed":                      goOn,
		"lost before it was committed":   cut,
		"lost after it was committed":    doneAndCut,
		"committed and told to be wrong": doneAndNo,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t)
			s.produceTo(mixedBatch(1)...)
			p := s.run()
			tape := s.tape()
			tape.waitDrained()
			before, offset := tape.seen(), s.folded()
			require.Equal(t, map[string]int{schema.TopicLikes: 5, schema.TopicState: before[schema.TopicState], schema.TopicUpdates: before[schema.TopicUpdates], schema.TopicDLT: 1}, before)

			h := s.holdCommit(0)
			s.produceTo(mixedBatch(10)...)
			h.wait()
			before[schema.TopicLikes] += 4 // what was produced just now
			require.Equal(t, before, tape.seen(), "records that readers of committed data see before the commit")
			require.Equal(t, offset, s.folded(), "committed offset before the commit")
			for topic, more := range map[string]int64{schema.TopicState: 4, schema.TopicUpdates: 2, schema.TopicDLT: 1} { // 2 pairs, counts, progress; 1 post, progress
				info := s.broker.PartitionInfo(topic, 0)
				require.Equal(t, info.LastStableOffset+more, info.HighWatermark, "records of the open transaction in %s", topic)
			}
			info := s.broker.PartitionInfo(schema.TopicLikes, 1)
			require.Equal(t, info.LastStableOffset+1, info.HighWatermark, "forwarded within the transaction")

			h.release(how)
			tape.waitDrained()
			want := tape.checkExact()
			require.Equal(t, 2, want.Forwarded)
			require.Equal(t, 2, want.Dead)
			require.Equal(t, offset+4, s.folded())
			p.waitReady()
		})
	}
}

// Whatever step of a transaction fails, once or a few times: the batch is done over,
// and nothing is left of the failed try. (A store that was written before the commit
// would take the second try for a repetition, and lose the counts.)
func TestAFailedStepLeavesNoTrace(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	p := s.run()
	tape := s.tape()
	s.produce(likes(1, 3)...)
	tape.waitDrained()
	txn := schema.FoldTransactionalID(0)
	user := uint64(100)
	for _, f := range []kfake.Fault{
		{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, TxnID: txn, Err: kerr.UnknownServerError},
		{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, TxnID: txn, Err: kerr.ConcurrentTransactions, Count: 3},
		{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, TxnID: txn, Err: kerr.NotCoordinator, Count: 2},
		{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, TxnID: txn, Err: kerr.RequestTimedOut}, // and done
		{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, TxnID: txn, Err: kerr.InvalidCommitOffsetSize, Count: 2},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: txn, Err: kerr.UnknownServerError},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: txn, Err: kerr.InvalidTxnState, Count: 2},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: txn, Err: kerr.NotCoordinator},
		{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: txn, Err: kerr.ConcurrentTransactions},
		{Keys: []kmsg.Key{kmsg.Produce}, Topic: schema.TopicUpdates, Partitions: []int32{0}, Err: kerr.UnknownServerError},
		{Keys: []kmsg.Key{kmsg.Produce}, Topic: schema.TopicUpdates, Partitions: []int32{0}, Err: kerr.NotEnoughReplicasAfterAppend}, // and done
		{Keys: []kmsg.Key{kmsg.Produce}, Topic: schema.TopicState, Partitions: []int32{0}, Err: kerr.InvalidRecord},
		{Keys: []kmsg.Key{kmsg.Produce}, Topic: schema.TopicState, Partitions: []int32{0}, Err: kerr.NotEnoughReplicas},
		{Keys: []kmsg.Key{kmsg.Produce}, Topic: schema.TopicDLT, Partitions: []int32{0}, Err: kerr.MessageTooLarge},
		{Keys: []kmsg.Key{kmsg.Produce}, Topic: schema.TopicLikes, Partitions: []int32{1}, Err: kerr.PolicyViolation},
	} {
		what := fmt.Sprintf("%v of %s%s fails with %s", f.Keys, f.TxnID, f.Topic, f.Err.Message)
		if f.Topic != "" { // of the fold, and not of the test
			f.When = func(r kmsg.Request) bool { return r.(*kmsg.ProduceRequest).TransactionID != nil }
		}
		user += 10
		h := s.broker.Fault(f)
		s.produceTo(mixedBatch(user)...)
		s.produce(likes(user, 2)...)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		require.NoError(t, h.Wait(ctx, max(1, f.Count)), "%s: waiting for it", what)
		cancel()
		tape.waitDrained()
		tape.checkExact()
		p.waitReady()
	}
	// What was done over is counted once.
	records := 0
	for _, log := range tape.read(schema.TopicLikes) {
		records += len(log)
	}
	p.waitIdle()
	require.Equal(t, records, p.metric("kudos_events_folded_total"))
	// The local state is what the log says, too: another processor begins with it.
	p.stop()
	s.produce(likes(5000, 2)...)
	s.run()
	tape.waitDrained()
	tape.checkExact()
}

// A fenced worker gives up at once and does not come back by itself: initialising
// again would fence the rightful owner.
func TestAFencedPartitionWaitsForANewAssignment(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	p := s.run()
	tape := s.tape()
	s.produce(likes(1, 1)...)
	tape.waitDrained()
	p.waitReady()
	// Somebody else initialises the transactional id.
	other := s.client(kgo.TransactionalID(schema.FoldTransactionalID(2)), kgo.TransactionTimeout(10*time.Second))
	_, _, err := other.ProducerID(t.Context())
	require.NoError(t, err)
	inits := s.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TxnID: schema.FoldTransactionalID(2), Observe: true, Count: -1})
	s.produce(likes(2, 1)...)
	p.waitParked("likes/2 fenced", "another process owns this partition")
	s.produce(likes(3, 1)...)
	s.waitFor("the other partitions to go on", func() (bool, any) {
		counts := s.counts()
		return counts[postIn(0)].Likes == 3 && counts[postIn(1)].Likes == 3 && counts[postIn(3)].Likes == 3, counts
	})
	require.Equal(t, int64(1), s.counts()[postIn(2)].Likes)
	require.Zero(t, inits.Hits(), "initialisations after the fencing")
	require.Equal(t, 1, p.metric("kudos_transactions_failed_total", schema.GroupFold, "fenced"))
	// A second processor makes the group assign anew.
	s.run()
	tape.waitDrained()
	tape.checkExact()
	require.Equal(t, int64(3), s.counts()[postIn(2)].Likes)
}
