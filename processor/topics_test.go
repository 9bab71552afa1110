package processor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"kudos/ops/topics"
	"kudos/processor"
	"kudos/schema"
	"kudos/sql"
)

func (s *system) checkTopics() []string {
	report, err := topics.Check(s.t.Context(), s.kafka, schema.Layout{Partitions: partitions}, 1, s.log)
	require.NoError(s.t, err)
	return report.Lines
}

func TestTopicsAreMade(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	require.Len(t, s.checkTopics(), 9, "each topic is missed: %v", s.checkTopics())
	report, err := s.applyTopics()
	require.NoError(t, err)
	require.Equal(t, []string{
		"created likes with 4 partitions, replication factor 1",
		"created latest-like-action-table with 4 partitions, replication factor 1",
		"created like-updates with 4 partitions, replication factor 1",
		"created likes.dlt with 4 partitions, replication factor 1",
		"created trending with 4 partitions, replication factor 1",
		"created trending-local with 4 partitions, replication factor 1",
		"created trending-local-table with 4 partitions, replication factor 1",
		"created trending-table with 4 partitions, replication factor 1",
		"created trending-exclusions with 1 partitions, replication factor 1",
		"partition 0 starts at offset 0 of likes",
		"partition 1 starts at offset 0 of likes",
		"partition 2 starts at offset 0 of likes",
		"partition 3 starts at offset 0 of likes",
	}, report.Lines)
	require.Empty(t, s.checkTopics())
	for _, want := range schema.Topics(partitions, 1) {
		info := s.broker.TopicInfo(want.Name)
		have := map[string]string{}
		for k, v := range info.Configs {
			have[k] = *v
		}
		require.Equal(t, want.Configs, have, want.Name)
		require.Len(t, s.broker.PartitionInfos(want.Name), int(want.Partitions))
	}

	report, err = s.applyTopics()
	require.NoError(t, err)
	require.Empty(t, report.Lines, "a second time there is nothing to do")
}

func TestFirstProgressSaysWhereAndOfWhat(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	require.NoError(t, s.broker.CreateTopic(schema.TopicLikes, partitions, nil))
	s.produceTo(likesTo(2, 10)...)
	require.NoError(t, s.broker.DeleteRecords(schema.TopicLikes, 2, 6))
	report, err := s.applyTopics()
	require.NoError(t, err)
	require.Contains(t, report.Lines, "partition 2 starts at offset 6 of likes")
	metadata, err := s.adm.BrokerMetadata(t.Context())
	require.NoError(t, err)
	for p, progress := range s.tape().progress() {
		require.Equal(t, schema.Progress{
			NextOffset: map[int]int64{2: 6}[p], LeaderEpoch: -1, ClusterID: metadata.Cluster, Partitions: partitions,
			SourceID:  s.broker.TopicInfo(schema.TopicLikes).TopicID,
			StateID:   s.broker.TopicInfo(schema.TopicState).TopicID,
			UpdatesID: s.broker.TopicInfo(schema.TopicUpdates).TopicID,
		}, progress, "partition %d", p)
	}
}

// likesTo are n likes for produceTo.
func likesTo(partition int32, n uint64) []*kgo.Record {
	var records []*kgo.Record
	for user := range n {
		rec := record(like(partition, user+1))
		rec.Partition = partition
		records = append(records, rec)
	}
	return records
}

func TestChangedSettingsAreToldAndSetBack(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	_, err := s.applyTopics()
	require.NoError(t, err)
	want := []string{}
	for _, topic := range schema.Topics(partitions, 1) {
		for key, value := range topic.Configs {
			wrong := "1"
			if value == "1" {
				wrong = "2"
			}
			_, err := s.adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &wrong}}, topic.Name)
			require.NoError(t, err)
			want = append(want, fmt.Sprintf("%s of %s is %q, not %s; run: kudos topics apply", key, topic.Name, wrong, value))
			require.ElementsMatch(t, want, s.checkTopics())
		}
	}
	report, err := s.applyTopics()
	require.NoError(t, err)
	require.Len(t, report.Lines, len(want))
	for _, line := range report.Lines {
		require.True(t, strings.HasPrefix(line, "set "), line)
	}
	require.Empty(t, s.checkTopics())
}

// An operator's longer retention is no fault, and applying again does not cut it.
func TestALongerRetentionStays(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	_, err := s.applyTopics()
	require.NoError(t, err)
	retentions := map[string]string{schema.TopicLikes: "604800000", schema.TopicDLT: "2592000000"}
	for topic, least := range retentions {
		for _, c := range []struct {
			value string
			fine  bool
		}{{"-1", true}, {least + "0", true}, {least[:len(least)-1], false}, {"-2", false}} {
			_, err := s.adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &c.value}}, topic)
			require.NoError(t, err)
			want := c.value
			if c.fine {
				require.Empty(t, s.checkTopics(), "%s of %s", c.value, topic)
			} else {
				want = least
				require.Equal(t, []string{fmt.Sprintf("retention.ms of %s is %q, not %s; run: kudos topics apply", topic, c.value, least)}, s.checkTopics())
			}
			_, err = s.applyTopics()
			require.NoError(t, err)
			require.Equal(t, want, *s.broker.TopicInfo(topic).Configs["retention.ms"])
		}
	}
}

// `kudos topics apply` was stopped halfway, or the state table was lost.
func TestCheckTellsPartitionsWithoutProgress(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	s.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TxnID: schema.FoldTransactionalID(2), Err: kerr.UnknownServerError, Count: 1})
	_, err := s.applyTopics()
	require.ErrorContains(t, err, "partition 2")
	require.Equal(t, []string{
		"partition 2 of the state table has no progress record; run: kudos topics apply",
		"partition 3 of the state table has no progress record; run: kudos topics apply",
	}, s.checkTopics())
	_, err = s.applyTopics()
	require.NoError(t, err)
	require.Empty(t, s.checkTopics())
}

func TestCheckTellsEachDifference(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	_, err := s.applyTopics()
	require.NoError(t, err)
	require.NoError(t, s.broker.DeleteTopic(schema.TopicDLT))
	require.Equal(t, []string{"topic likes.dlt is missing; run: kudos topics apply"}, s.checkTopics())
	_, err = s.applyTopics()
	require.NoError(t, err)
	_, err = s.adm.CreatePartitions(t.Context(), 1, schema.TopicUpdates)
	require.NoError(t, err)
	require.Equal(t, []string{"topic like-updates has 5 partitions, it must have 4"}, s.checkTopics())
	report, err := topics.Check(t.Context(), s.kafka, schema.Layout{Partitions: partitions}, 3, s.log)
	require.NoError(t, err)
	require.Contains(t, strings.Join(report.Lines, "\n"), "topic likes has replication factor 1, not 3; reassign")
}

func TestTopicsApplyChangesNoPartitionCount(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	_, err := s.applyTopics()
	require.NoError(t, err)
	_, err = topics.Apply(t.Context(), s.kafka, schema.Layout{Partitions: 8}, 1, s.log)
	require.ErrorContains(t, err, "the state table has 4 partitions, not 8, and a partition count decides where a post lives: to add partitions, run `kudos topics repartition`; or set topics.partitions to 4")
	_, err = topics.Apply(t.Context(), s.kafka, schema.Layout{Partitions: 3}, 1, s.log)
	require.ErrorContains(t, err, "Kafka takes none away: set topics.partitions to 4")
	buckets, err := schema.NewLayout(partitions, "42:16")
	require.NoError(t, err)
	_, err = topics.Apply(t.Context(), s.kafka, buckets, 1, s.log)
	require.ErrorContains(t, err, "the state table has the user buckets [], and topics.user_buckets are [42:16]: they decide where a reaction lives; to change them, run `kudos topics repartition`")
	require.Len(t, s.broker.PartitionInfos(schema.TopicLikes), partitions)
}

func TestProgressIsNotTouchedOnceWritten(t *testing.T) {
	t.Parallel()
	s, tape, p := busySystem(t)
	before := s.broker.PartitionInfos(schema.TopicState)
	inits := s.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Observe: true, Count: -1})
	for range 3 {
		report, err := s.applyTopics()
		require.NoError(t, err)
		require.Empty(t, report.Lines)
	}
	require.Equal(t, before, s.broker.PartitionInfos(schema.TopicState))
	require.Zero(t, inits.Hits(), "a running processor is not fenced")
	s.produce(likes(100, 3)...)
	tape.waitDrained()
	tape.checkExact()
	require.NoError(t, p.Ready())
}

func TestTopicsApplyUnderLoad(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	tape := s.tape()
	p := s.run(maxBatch(20))
	for round := range uint64(10) {
		s.produce(likes(100*round+1, 50)...)
		_, err := s.applyTopics()
		require.NoError(t, err)
		require.Empty(t, s.checkTopics())
	}
	tape.waitDrained()
	p.waitReady()
	tape.checkExact()
}

func TestUpdatesWithoutStateAreRefused(t *testing.T) {
	t.Parallel()
	s, _, p := busySystem(t)
	p.stop()
	s.recreate(schema.TopicState)
	_, err := s.applyTopics()
	require.ErrorContains(t, err, "like-updates/0 has records but latest-like-action-table/0 has none: the state table was lost; `kudos rebuild --from-events` makes it anew if likes still has its start")
	for _, info := range s.broker.PartitionInfos(schema.TopicState) {
		require.Zero(t, info.HighWatermark, "nothing was written")
	}
}

// An earlier `topics apply` died before its commit: aborted records are no records.
func TestWhatWasAbortedDoesNotCount(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	s.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: schema.FoldTransactionalID(1)})
	_, err := s.applyTopics()
	require.ErrorContains(t, err, "writing the first progress record of partition 1")
	for _, topic := range []string{schema.TopicState, schema.TopicUpdates} {
		cl := s.client(kgo.TransactionalID(schema.FoldTransactionalID(1)), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		require.NoError(t, cl.BeginTransaction())
		require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 1, Key: []byte("k"), Value: []byte("v")}).FirstErr())
		require.NoError(t, cl.EndTransaction(t.Context(), kgo.TryAbort))
		require.NotZero(t, s.broker.PartitionInfo(topic, 1).LastStableOffset)
	}
	report, err := s.applyTopics()
	require.NoError(t, err)
	require.Equal(t, []string{"partition 1 starts at offset 0 of likes", "partition 2 starts at offset 0 of likes", "partition 3 starts at offset 0 of likes"}, report.Lines)
}

func TestAClusterThatIsTooOldIsRefused(t *testing.T) {
	t.Parallel()
	s := newBroker(t, kfake.MaxVersions(kversion.V3_8_0()))
	const remedy = "kafka-features.sh"
	_, err := s.applyTopics()
	require.ErrorContains(t, err, remedy)
	require.Nil(t, s.broker.TopicInfo(schema.TopicLikes))
	report, err := topics.Check(t.Context(), s.kafka, schema.Layout{Partitions: partitions}, 1, s.log)
	require.NoError(t, err)
	require.Contains(t, report.Lines[0], remedy)

	o := sql.DefaultOptions()
	o.DSN = "user@tcp(127.0.0.1:1)/none"
	store, err := sql.Open(o, s.log)
	require.NoError(t, err)
	defer store.Close()
	options := processor.DefaultOptions()
	options.StateDir = t.TempDir()
	p, err := processor.New(options, s.kafka, store, s.log, prometheus.NewRegistry())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.ErrorContains(t, p.Run(ctx), remedy)
}
