//go:build !nodev

package devtest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit/apikit"
	"kudos/schema"
	"kudos/stream/kafka"
)

// Kafka is a broker for one test, with helpers to write and read.
type Kafka struct {
	t       testing.TB
	Broker  *kfake.Cluster
	Options kafka.Options
	Client  *kgo.Client // records choose their partition
}

// NewKafka starts an empty broker.
func NewKafka(t testing.TB, opts ...kfake.Opt) *Kafka {
	k := &Kafka{t: t}
	k.Broker, k.Options = Broker(t, opts...)
	k.Client = k.NewClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	return k
}

// NewClient returns a client that is closed at the end of the test.
func (k *Kafka) NewClient(opts ...kgo.Opt) *kgo.Client {
	cl, err := k.Options.NewClient(Log(), opts...)
	require.NoError(k.t, err)
	k.t.Cleanup(cl.Close)
	return cl
}

// Write writes records without a transaction.
func (k *Kafka) Write(records ...*kgo.Record) {
	k.t.Helper()
	require.NoError(k.t, k.Client.ProduceSync(k.t.Context(), records...).FirstErr())
}

// Records returns the committed records of a partition.
func (k *Kafka) Records(topic string, partition int32) []*kgo.Record {
	k.t.Helper()
	return apikit.Records(k.t, k.Client, topic, partition)
}

// End returns the end of a partition's log.
func (k *Kafka) End(topic string, partition int32) int64 {
	return k.Broker.PartitionInfo(topic, partition).HighWatermark
}

// Set changes a setting of a topic.
func (k *Kafka) Set(topic, name, value string) {
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}
	responses, err := kadm.NewClient(k.Client).AlterTopicConfigs(k.t.Context(), change, topic)
	require.NoError(k.t, err)
	require.NoError(k.t, responses[0].Err)
}

// PairRecord returns a record of the state table with the reaction of one user on one post.
func PairRecord(partition int32, post, user uint64, p schema.Pair) *kgo.Record {
	return stateRecord(partition, schema.AppendPairKey(nil, post, user), schema.AppendPair(nil, &p))
}

// CountsRecord returns a record of the state table with the counts of a post.
func CountsRecord(partition int32, post uint64, c schema.Counts) *kgo.Record {
	return stateRecord(partition, schema.AppendCountsKey(nil, post), schema.AppendCounts(nil, c))
}

// ProgressRecord returns a progress record of the state table.
func ProgressRecord(partition int32, p schema.Progress) *kgo.Record {
	return stateRecord(partition, []byte(schema.StateProgressKey), schema.AppendProgress(nil, &p))
}

func stateRecord(partition int32, key, value []byte) *kgo.Record {
	return &kgo.Record{Topic: schema.TopicState, Partition: partition, Key: key, Value: value}
}

// UpdateRecord returns a record of like-updates. Post 0 means none, as in a schema.ProgressUpdate.
func UpdateRecord(partition int32, post uint64, u schema.Update) *kgo.Record {
	key := []byte(schema.ProgressKey)
	if post != 0 {
		key = schema.AppendPostKey(nil, post)
	}
	return &kgo.Record{Topic: schema.TopicUpdates, Partition: partition, Key: key, Value: schema.AppendUpdate(nil, &u)}
}
