package stream

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"kudos/dev/testkit"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

type cluster struct {
	*testkit.Cluster
	t     testing.TB
	kafka kafka.Options
}

func newCluster(t testing.TB, opts ...kfake.Opt) *cluster {
	c := &cluster{Cluster: testkit.NewCluster(t, opts...), t: t, kafka: kafka.DefaultOptions()}
	c.kafka.Brokers, c.kafka.RequestTimeout = c.ListenAddrs(), 10*time.Second
	return c
}

const (
	testGroup = "group"
	input     = "input"
	output    = "output"
)

// recreate deletes Table and creates it with one partition.
func (c *cluster) recreate() {
	require.NoError(c.t, c.DeleteTopic(testkit.Table))
	c.Topic(testkit.Table, 1)
}

func (c *cluster) values(topic string, partition int32) (values []string) {
	require.NoError(c.t, kafka.ReadLog(testkit.Context(c.t), c.Client(), topic, partition,
		c.PartitionInfo(topic, partition).LogStartOffset, func(chunk kafka.LogChunk) (bool, error) {
			for _, rec := range chunk.Records {
				values = append(values, string(rec.Value))
			}
			return chunk.Next < chunk.End, nil
		}))
	return values
}

// catchUp opens the store of partition 0 of Table below dir, and brings it up to date.
func (c *cluster) catchUp(dir string) (*store.Store, error) {
	stores := store.NewSet(dir, 8<<20, testkit.Log())
	c.t.Cleanup(stores.Close)
	s := stores.New(testkit.Table, 0)
	c.t.Cleanup(func() { require.NoError(c.t, s.Close()) })
	_, err := s.CatchUp(testkit.Context(c.t), c.Client(), store.Hooks{})
	return s, err
}

func get(t testing.TB, s *store.Store, key string) (value string) {
	_, err := s.Find([]byte(key), func(v []byte) error { value = string(v); return nil })
	require.NoError(t, err)
	return value
}
