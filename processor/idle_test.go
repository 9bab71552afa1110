package processor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/processor"
	"kudos/schema"
)

// Without work there are no transactions, nothing is written anywhere, and nothing is
// behind.
func TestAnIdleSystemIsQuiet(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	tape := s.tape()
	p := s.run(func(o *processor.Options) { o.SessionTimeout = 10 * time.Second }) // a heartbeat every 2 s
	s.produceTo(mixedBatch(1)...)                                                  // one of them is forwarded: a commit marker ends likes/1
	s.produce(likes(10, 5)...)
	tape.waitDrained()
	p.waitReady()
	p.waitIdle()
	s.waitFor("the offsets of like-count to be committed up to the end", func() (bool, any) {
		offsets, err := s.adm.FetchOffsets(t.Context(), schema.GroupApply)
		require.NoError(t, err)
		for partition, info := range s.broker.PartitionInfos(schema.TopicUpdates) {
			if o, ok := offsets.Lookup(schema.TopicUpdates, int32(partition)); !ok || o.At != info.LastStableOffset {
				return false, offsets
			}
		}
		return true, nil
	})

	work := s.observe(kmsg.Produce, kmsg.EndTxn, kmsg.TxnOffsetCommit, kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.OffsetCommit, kmsg.JoinGroup)
	transactions, applies := p.metric("kudos_fold_transactions_total"), p.metric("kudos_mysql_transactions_total")
	var beats []*kfake.FaultHandle
	for _, group := range []string{schema.GroupFold, schema.GroupApply} {
		beats = append(beats, s.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: group, Observe: true, Count: -1}))
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
