package apikit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/schema"
	"kudos/stream/kafka"
)

// Broker starts an embedded broker with topics.
func Broker(t testing.TB, partitions int32, topics []string, opts ...kfake.Opt) (*testkit.Cluster, kafka.Options) {
	t.Helper()
	cluster := testkit.NewCluster(t, opts...)
	for _, topic := range topics {
		cluster.Topic(topic, partitions)
	}
	options := kafka.DefaultOptions()
	options.Brokers = cluster.ListenAddrs()
	options.RequestTimeout = 5 * time.Second
	return cluster, options
}

// Likes reads all records of likes, by partition and offset.
func Likes(t testing.TB, options kafka.Options) (records []*kgo.Record) {
	t.Helper()
	cl, err := options.NewClient(testkit.Log())
	require.NoError(t, err)
	defer cl.Close()
	ctx := testkit.Context(t)
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicLikes)
	require.NoError(t, err)
	for p := range topics.ByName[schema.TopicLikes].Partitions {
		from, end, err := kafka.Bounds(ctx, cl, schema.TopicLikes, p)
		require.NoError(t, err)
		if from == end {
			continue
		}
		err = kafka.ReadLog(ctx, cl, schema.TopicLikes, p, from, func(c kafka.LogChunk) (bool, error) {
			records = append(records, c.Records...)
			return c.Next < end, nil
		})
		require.NoError(t, err)
	}
	return records
}

// Event decodes a record of likes.
func Event(t testing.TB, rec *kgo.Record) (e schema.Event) {
	t.Helper()
	require.NoError(t, schema.DecodeEvent(rec.Key, rec.Value, &e))
	return e
}
