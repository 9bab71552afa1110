package rankings

import (
	"context"
	"testing"
	"time"

	"kudos/dev/testkit"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestRead(t *testing.T) {
	cluster := testkit.NewCluster(t, kfake.SeedTopics(3, topicUpdates, topicTrending),
		kfake.SeedTopics(1, topicExclusions))
	ctx := testkit.Within(t, 30*time.Second)

	log, err := Read(ctx, cluster.ListenAddrs())
	require.NoError(t, err)
	require.Equal(t, &Log{Updates: []*Tape{{}, {}, {}}}, log)

	cl := cluster.Client(kgo.TransactionalID("t"))
	stamp := time.UnixMilli(1_700_000_000_123)
	write := func(end kgo.TransactionEndTry, records ...*kgo.Record) {
		require.NoError(t, cl.BeginTransaction())
		require.NoError(t, cl.ProduceSync(ctx, records...).FirstErr())
		require.NoError(t, cl.EndTransaction(ctx, end))
	}
	record := func(topic string, partition int32, key, value string) *kgo.Record {
		return &kgo.Record{Topic: topic, Partition: partition, Key: []byte(key), Value: []byte(value), Timestamp: stamp}
	}
	write(kgo.TryCommit, record(topicUpdates, 2, "7", "a"), record(topicUpdates, 2, "_", "b"),
		record(topicUpdates, 0, "8", "c"))
	write(kgo.TryAbort, record(topicUpdates, 2, "7", "aborted"), record(topicTrending, 1, "DE/1h", "aborted"))
	write(kgo.TryCommit, record(topicTrending, 1, "DE/1h", "1"), record(topicTrending, 1, "DE/1h", "2"),
		record(topicExclusions, 0, "7", "x"))

	log, err = Read(ctx, cluster.ListenAddrs())
	require.NoError(t, err)
	want := []*Tape{{}, {}, {}}
	want[2].Add(Record{Offset: 0, TimeMs: stamp.UnixMilli(), Key: []byte("7"), Value: []byte("a")})
	want[2].Add(Record{Offset: 1, TimeMs: stamp.UnixMilli(), Key: []byte("_"), Value: []byte("b")})
	want[2].EndAt(5) // a marker, an aborted record, a marker
	want[0].Add(Record{Offset: 0, TimeMs: stamp.UnixMilli(), Key: []byte("8"), Value: []byte("c")})
	want[0].EndAt(2)
	require.Equal(t, want, log.Updates)
	require.Equal(t, []Record{{Offset: 0, TimeMs: stamp.UnixMilli(), Key: []byte("7"), Value: []byte("x")}},
		log.Exclusions)
	require.Len(t, log.Rankings, 2)
	require.Equal(t, "1", string(log.Rankings[0].Value))
	require.Equal(t, "2", string(log.Rankings[1].Value))

	_, err = Read(testkit.Canceled(), cluster.ListenAddrs())
	require.ErrorIs(t, err, context.Canceled)
}
