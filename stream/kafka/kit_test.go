package kafka

import (
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

type cluster struct {
	*testkit.Cluster
	t     testing.TB
	kafka Options
}

func newCluster(t testing.TB, opts ...kfake.Opt) *cluster {
	c := &cluster{Cluster: testkit.NewCluster(t, opts...), t: t, kafka: DefaultOptions()}
	c.kafka.Brokers, c.kafka.RequestTimeout = c.ListenAddrs(), 10*time.Second
	return c
}

func (c *cluster) values(topic string, partition int32) (values []string) {
	cl := c.Client()
	defer cl.Close()
	err := ReadLog(testkit.Context(c.t), cl, topic, partition, 0, func(chunk LogChunk) (bool, error) {
		for _, rec := range chunk.Records {
			values = append(values, string(rec.Value))
		}
		return chunk.Next < chunk.End, nil
	})
	require.NoError(c.t, err)
	return values
}

// Closing a client does not remove what it counted, nor the metrics of the others.
func TestClientMetricsAreOfAllClients(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(input, 1)
	reg := prometheus.NewRegistry()
	c.kafka.Hooks = append(c.kafka.Hooks, NewClientMetrics(reg))
	for _, records := range [][]*kgo.Record{testkit.Records(input, 0, 0, 10), testkit.Records(input, 0, 10, 5)} {
		cl, err := c.kafka.NewClient(testkit.Log())
		require.NoError(t, err)
		require.NoError(t, cl.ProduceSync(testkit.Context(t), records...).FirstErr())
		cl.Close()
	}
	var sums map[string]float64
	testkit.WaitFor(t, "the records to be counted", func() bool { // kgo counts them after it has acknowledged them
		families, err := reg.Gather()
		require.NoError(t, err)
		sums = map[string]float64{}
		for _, f := range families {
			for _, m := range f.Metric {
				sums[f.GetName()] += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		return sums["kudos_kafka_produce_records_total"] >= 15
	})
	require.EqualValues(t, 15, sums["kudos_kafka_produce_records_total"])
	for _, name := range []string{"kudos_kafka_connects_total",
		"kudos_kafka_disconnects_total", "kudos_kafka_write_bytes_total", "kudos_kafka_request_duration_e2e_seconds"} {
		require.Positive(t, sums[name], name)
	}
	require.NotContains(t, sums, "kudos_kafka_buffered_produce_bytes", "it would cover only one client")
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	require.Empty(t, problems)
}
