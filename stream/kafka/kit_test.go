package kafka

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"kudos/dev/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// cluster is a broker in this process, and how to reach it.
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

// values returns the committed values of a partition in order.
func (c *cluster) values(topic string, partition int32) []string {
	ctx := testkit.Context(c.t)
	cl := c.Client()
	defer cl.Close()
	start, end, err := Bounds(ctx, cl, topic, partition)
	require.NoError(c.t, err)
	var values []string
	for r := NewLogReader(cl, topic, partition, 0); start < end; {
		f, err := r.Fetch(ctx, start)
		require.NoError(c.t, err)
		for _, rec := range f.Records {
			values = append(values, string(rec.Value))
		}
		start = f.Next
	}
	return values
}
