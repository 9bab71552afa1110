package ranker

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
)

// patience bounds every wait of these tests.
const patience = 20 * time.Second

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newBroker is an embedded broker with some topics, and a client of it that places records
// as Kafka does by default.
func newBroker(t *testing.T, partitions int32, topics ...string) (*kfake.Cluster, kafka.Options, *kgo.Client) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics...))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	kafka := kafka.DefaultOptions()
	kafka.Brokers = cluster.ListenAddrs()
	kafka.RequestTimeout = 5 * time.Second
	cl, err := kafka.NewClient(discardLog(), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cluster, kafka, cl
}

func produce(t *testing.T, cl *kgo.Client, records ...*kgo.Record) {
	t.Helper()
	require.NoError(t, cl.ProduceSync(t.Context(), records...).FirstErr())
}
