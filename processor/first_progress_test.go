package processor_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/ops/topics"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// addFirstProgress is what `kudos topics repartition` does for a partition that it has added.
func (s *system) addFirstProgress(partition int32) error {
	have, err := kafka.LookUpTopics(s.t.Context(), s.cl, schema.TopicLikes, schema.TopicState, schema.TopicUpdates)
	require.NoError(s.t, err)
	return topics.AddFirstProgress(s.t.Context(), s.kafka, have, partition, schema.Layout{Partitions: partitions}, 1, s.log)
}

// A partition that has anything was folded, or is being folded: the first progress record
// would have all of it folded again.
func TestFirstProgressIsOfAnEmptyStateTable(t *testing.T) {
	t.Parallel()
	const partition = 2
	something := func() *kgo.Record {
		return &kgo.Record{Topic: schema.TopicState, Partition: partition, Key: schema.AppendCountsKey(nil, 7), Value: schema.AppendCounts(nil, schema.Counts{Likes: 1})}
	}
	// empty is a system whose state table has nothing of the partition.
	empty := func(t *testing.T) (*system, *kfake.FaultHandle) {
		s := newBroker(t)
		_, err := s.applyTopics()
		require.NoError(t, err)
		require.NoError(t, s.broker.DeleteRecords(schema.TopicState, partition, -1))
		return s, s.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TxnID: schema.FoldTransactionalID(partition), Observe: true, Count: -1})
	}
	t.Run("empty", func(t *testing.T) {
		t.Parallel()
		s, inits := empty(t)
		require.NoError(t, s.addFirstProgress(partition))
		require.NotZero(t, inits.Hits())
		last, err := table.LastProgress(t.Context(), s.cl, partition)
		require.NoError(t, err)
		require.True(t, last.Moving)
	})
	t.Run("there before", func(t *testing.T) {
		t.Parallel()
		s, inits := empty(t)
		s.produceTo(something())
		before := s.broker.PartitionInfo(schema.TopicState, partition)
		require.NoError(t, s.addFirstProgress(partition))
		require.Equal(t, before, s.broker.PartitionInfo(schema.TopicState, partition), "nothing was written")
		require.Zero(t, inits.Hits(), "whoever folds it is not fenced")
	})
	t.Run("written just before the fence", func(t *testing.T) {
		t.Parallel()
		s, _ := empty(t)
		cl := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		var once atomic.Bool
		s.broker.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
			if id := r.(*kmsg.InitProducerIDRequest).TransactionalID; id != nil && *id == schema.FoldTransactionalID(partition) && once.CompareAndSwap(false, true) {
				s.broker.SleepControl(func() { assert.NoError(t, cl.ProduceSync(t.Context(), something()).FirstErr()) })
			}
			return nil, nil, false
		})
		require.NoError(t, s.addFirstProgress(partition))
		require.True(t, once.Load(), "it was found empty at first")
		last, err := table.LastProgress(t.Context(), s.cl, partition)
		require.NoError(t, err)
		require.Nil(t, last, "of who fences, only what the fenced one left counts")
	})
}
