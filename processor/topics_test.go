package processor_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"kudos/dev/devtest"
	"kudos/ops/topics"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

func optionsOf(layout schema.Layout, replicas int16) topics.Options {
	return topics.Options{Partitions: layout.Partitions, ReplicationFactor: replicas,
		UserBuckets: layout.UserBuckets().List()}
}

func (s *system) tryTopics(layout schema.Layout) (*topics.Report, error) {
	return topics.Apply(s.t.Context(), s.Options, optionsOf(layout, 1), s.log)
}

func (s *system) applyTopics() []string {
	s.t.Helper()
	report, err := s.tryTopics(fourPartitions)
	require.NoError(s.t, err)
	return report.Lines
}

func (s *system) refuseTopics(layout schema.Layout, says string) {
	s.t.Helper()
	_, err := s.tryTopics(layout)
	require.ErrorContains(s.t, err, says)
}

func (s *system) checkLayout(layout schema.Layout, replicas int16) []string {
	s.t.Helper()
	report, err := topics.Check(s.t.Context(), s.Options, optionsOf(layout, replicas), s.log)
	require.NoError(s.t, err)
	return report.Lines
}

func (s *system) checkTopics(replicas int16) []string { return s.checkLayout(fourPartitions, replicas) }

func newTopics(t testing.TB) *system {
	s := newBroker(t)
	s.applyTopics()
	return s
}

var fourPartitions = schema.Layout{Partitions: partitions}

// startsAt0 is what topics.Apply reports for partitions whose first progress record it has written.
func startsAt0(partitions ...int32) (lines []string) {
	for _, p := range partitions {
		lines = append(lines, fmt.Sprintf("partition %d starts at offset 0 of likes", p))
	}
	return lines
}

func TestTopicsAreMade(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	require.Len(t, s.checkTopics(1), 14, "each topic is reported missing: %v", s.checkTopics(1))
	var created []string
	for _, name := range strings.Fields("likes latest-like-action-table like-updates like-counts likes.dlt " +
		"trending trending-local trending-local-table trending-table") {
		created = append(created, "created "+name+" with 4 partitions, replication factor 1")
	}
	created = append(created, "created trending-exclusions with 1 partitions, replication factor 1")
	for _, name := range strings.Fields("milestones milestones-local milestones-table notify.dlt") {
		created = append(created, "created "+name+" with 4 partitions, replication factor 1")
	}
	require.Equal(t, append(created, startsAt0(0, 1, 2, 3)...), s.applyTopics())
	require.Empty(t, s.checkTopics(1))
	for _, want := range schema.Topics(partitions, 1) {
		info := s.Broker.TopicInfo(want.Name)
		have := map[string]string{}
		for k, v := range info.Configs {
			have[k] = *v
		}
		require.Equal(t, want.Configs, have, want.Name)
		require.Len(t, s.Broker.PartitionInfos(want.Name), int(want.Partitions))
	}

	require.Empty(t, s.applyTopics(), "the second run does nothing")
}

func TestFirstProgressSaysWhereAndOfWhat(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	require.NoError(t, s.Broker.CreateTopic(schema.TopicLikes, partitions, nil))
	for user := range uint64(10) {
		s.produce(record(like(2, user+1)))
	}
	require.NoError(t, s.Broker.DeleteRecords(schema.TopicLikes, 2, 6))
	require.Contains(t, s.applyTopics(), "partition 2 starts at offset 6 of likes")
	metadata, err := s.adm.BrokerMetadata(t.Context())
	require.NoError(t, err)
	for p := range int32(partitions) {
		require.Equal(t, &schema.Progress{
			NextOffset: map[int32]int64{2: 6}[p], LeaderEpoch: -1, ClusterID: metadata.Cluster, Partitions: partitions,
			Voids:       true,
			Alternating: true, Regions: "0:1:",
			SourceID:  s.Broker.TopicInfo(schema.TopicLikes).TopicID,
			StateID:   s.Broker.TopicInfo(schema.TopicState).TopicID,
			UpdatesID: s.Broker.TopicInfo(schema.TopicUpdates).TopicID,
		}, s.progress(p), "partition %d", p)
	}
}

func (s *system) configure(topic, key, value string) {
	s.t.Helper()
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}
	_, err := s.adm.AlterTopicConfigs(s.t.Context(), set, topic)
	require.NoError(s.t, err)
}

func TestChangedSettingsAreReportedAndRestored(t *testing.T) {
	t.Parallel()
	s := newTopics(t)
	want := []string{}
	for _, topic := range schema.Topics(partitions, 1) {
		for key, value := range topic.Configs {
			wrong := "1"
			if value == "1" {
				wrong = "2"
			}
			s.configure(topic.Name, key, wrong)
			want = append(want, fmt.Sprintf("%s of %s is %q, not %s; run: kudos topics apply", key, topic.Name, wrong,
				value))
			require.ElementsMatch(t, want, s.checkTopics(1))
		}
	}
	lines := s.applyTopics()
	require.Len(t, lines, len(want))
	for _, line := range lines {
		require.True(t, strings.HasPrefix(line, "set "), line)
	}
	require.Empty(t, s.checkTopics(1))
}

func TestALongerRetentionStays(t *testing.T) {
	t.Parallel()
	s := newTopics(t)
	retentions := map[string]string{schema.TopicLikes: "604800000", schema.TopicDLT: "2592000000"}
	for topic, least := range retentions {
		for _, c := range []struct {
			value string
			fine  bool
		}{{"-1", true}, {least + "0", true}, {least[:len(least)-1], false}, {"-2", false}} {
			s.configure(topic, "retention.ms", c.value)
			want, says := c.value, []string{}
			if !c.fine {
				want = least
				says = []string{fmt.Sprintf("retention.ms of %s is %q, not %s; run: kudos topics apply", topic, c.value,
					least)}
			}
			require.Equal(t, says, s.checkTopics(1), "%s of %s", c.value, topic)
			s.applyTopics()
			require.Equal(t, want, *s.Broker.TopicInfo(topic).Configs["retention.ms"])
		}
	}
}

// stopTopics runs `kudos topics apply` and makes it fail at a partition.
func (s *system) stopTopics(partition int32) {
	s.t.Helper()
	s.Broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TxnID: schema.FoldTransactionalIDs(partition)[0],
		Err: kerr.UnknownServerError, Count: 1})
	s.refuseTopics(fourPartitions, fmt.Sprintf("partition %d", partition))
}

// `kudos topics apply` was interrupted, or the state table was lost.
func TestCheckReportsPartitionsWithoutProgress(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	s.stopTopics(2)
	require.Equal(t, []string{"partition 2 of the state table has no progress record; run: kudos topics apply",
		"partition 3 of the state table has no progress record; run: kudos topics apply"}, s.checkTopics(1))
	s.applyTopics()
	require.Empty(t, s.checkTopics(1))
}

func TestCheckReportsEachDifference(t *testing.T) {
	t.Parallel()
	s := newTopics(t)
	require.NoError(t, s.Broker.DeleteTopic(schema.TopicDLT))
	require.Equal(t, []string{"topic likes.dlt is missing; run: kudos topics apply"}, s.checkTopics(1))
	s.applyTopics()
	_, err := s.adm.CreatePartitions(t.Context(), 1, schema.TopicUpdates)
	require.NoError(t, err)
	require.Equal(t, []string{"topic like-updates has 5 partitions but must have 4"}, s.checkTopics(1))
	require.Contains(t, strings.Join(s.checkTopics(3), "\n"), "topic likes has replication factor 1, not 3; reassign")
}

func TestTopicsApplyChangesNoPartitionCount(t *testing.T) {
	t.Parallel()
	s := newTopics(t)
	s.refuseTopics(schema.Layout{Partitions: 8},
		"the state table has 4 partitions, not 8, and the partition count determines "+
			"where a post is stored: to add partitions, run `kudos topics repartition`; or set topics.partitions to 4")
	s.refuseTopics(schema.Layout{Partitions: 3}, "Kafka cannot remove any: set topics.partitions to 4")
	buckets, err := schema.NewLayout(partitions, "42:16")
	require.NoError(t, err)
	s.refuseTopics(buckets, "the state table has the user buckets [], but topics.user_buckets is [42:16]: "+
		"they determine the partition of a reaction; to change them, run `kudos topics repartition`")
	require.Len(t, s.Broker.PartitionInfos(schema.TopicLikes), partitions)
}

func TestProgressIsNotTouchedOnceWritten(t *testing.T) {
	t.Parallel()
	s, p := busySystem(t)
	before := s.Broker.PartitionInfos(schema.TopicState)
	inits := s.Broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Observe: true, Count: -1})
	for range 3 {
		require.Empty(t, s.applyTopics())
	}
	require.Equal(t, before, s.Broker.PartitionInfos(schema.TopicState))
	require.Zero(t, inits.Hits(), "a running processor is not fenced")
	s.produce(likes(100, 3)...)
	s.waitExact()
	require.NoError(t, p.Ready())
}

func TestUpdatesWithoutStateAreRejected(t *testing.T) {
	t.Parallel()
	s, p := busySystem(t)
	p.stop()
	s.recreate(schema.TopicState)
	s.refuseTopics(fourPartitions, "like-updates/0 has records but latest-like-action-table/0 has none: "+
		"the state table was lost; `kudos rebuild --from-events` rebuilds it if likes still has all events")
	for _, info := range s.Broker.PartitionInfos(schema.TopicState) {
		require.Zero(t, info.HighWatermark, "nothing was written")
	}
}

// An earlier `topics apply` died before its commit: aborted records do not count.
func TestAbortedRecordsDoNotCount(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	s.Broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, TxnID: schema.FoldTransactionalIDs(1)[0]})
	s.refuseTopics(fourPartitions, "writing the first progress record of partition 1")
	for _, topic := range []string{schema.TopicState, schema.TopicUpdates} {
		cl := s.NewClient(kgo.TransactionalID(schema.FoldTransactionalIDs(1)[0]),
			kgo.RecordPartitioner(kgo.ManualPartitioner()))
		require.NoError(t, cl.BeginTransaction())
		rec := &kgo.Record{Topic: topic, Partition: 1, Key: []byte("k"), Value: []byte("v")}
		require.NoError(t, cl.ProduceSync(t.Context(), rec).FirstErr())
		require.NoError(t, cl.EndTransaction(t.Context(), kgo.TryAbort))
		require.NotZero(t, s.Broker.PartitionInfo(topic, 1).LastStableOffset)
	}
	require.Equal(t, startsAt0(1, 2, 3), s.applyTopics())
}

func TestOldClusterIsRejected(t *testing.T) {
	t.Parallel()
	s := newBroker(t, kfake.MaxVersions(kversion.V3_8_0()))
	const action = "kafka-features.sh"
	s.refuseTopics(fourPartitions, action)
	require.Nil(t, s.Broker.TopicInfo(schema.TopicLikes))
	require.Contains(t, s.checkTopics(1)[0], action)
	s.mysql = sql.DefaultOptions()
	s.mysql.DSN = "user@tcp(127.0.0.1:1)/none"
	require.ErrorContains(t, s.runToEnd(), action)
}

// addFirstProgress does what `kudos topics repartition` does for a partition that it has added.
func (s *system) addFirstProgress(partition int32) error {
	have, err := kafka.LookUpTopics(s.t.Context(), s.Client, schema.TopicLikes, schema.TopicState, schema.TopicUpdates)
	require.NoError(s.t, err)
	return topics.AddFirstProgress(s.t.Context(), s.Options, s.Client, have, partition, schema.Progress{
		Partitions: fourPartitions.Partitions, Layouts: 1, Migrating: true}, s.log)
}

// A partition with any state was folded, or is being folded: a first progress record would fold everything again.
func TestFirstProgressIsOfAnEmptyStateTable(t *testing.T) {
	t.Parallel()
	const partition = 2
	something := func() *kgo.Record { return devtest.CountsRecord(partition, 7, schema.Counts{Likes: 1}) }
	// empty returns a system whose state table has nothing of the partition.
	empty := func(t *testing.T) (*system, *kfake.FaultHandle) {
		s := newTopics(t)
		require.NoError(t, s.Broker.DeleteRecords(schema.TopicState, partition, -1))
		return s, s.Broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID},
			TxnID: schema.FoldTransactionalIDs(partition)[0], Observe: true, Count: -1})
	}
	t.Run("empty", func(t *testing.T) {
		t.Parallel()
		s, inits := empty(t)
		require.NoError(t, s.addFirstProgress(partition))
		require.NotZero(t, inits.Hits())
		require.True(t, s.progress(partition).Migrating)
	})
	t.Run("already written", func(t *testing.T) {
		t.Parallel()
		s, inits := empty(t)
		s.produce(something())
		before := s.Broker.PartitionInfo(schema.TopicState, partition)
		require.NoError(t, s.addFirstProgress(partition))
		require.Equal(t, before, s.Broker.PartitionInfo(schema.TopicState, partition), "nothing was written")
		require.Zero(t, inits.Hits(), "its owner is not fenced")
	})
	t.Run("written just before the fence", func(t *testing.T) {
		t.Parallel()
		s, _ := empty(t)
		cl := s.NewClient(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		var once atomic.Bool
		s.Broker.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
			if id := r.(*kmsg.InitProducerIDRequest).TransactionalID; id != nil &&
				*id == schema.FoldTransactionalIDs(partition)[0] && once.CompareAndSwap(false, true) {
				s.Broker.SleepControl(func() { assert.NoError(t, cl.ProduceSync(t.Context(), something()).FirstErr()) })
			}
			return nil, nil, false
		})
		require.NoError(t, s.addFirstProgress(partition))
		require.True(t, once.Load(), "it was empty at first")
		last, err := table.LastProgress(t.Context(), s.Client, partition)
		require.NoError(t, err)
		require.Nil(t, last, "it writes nothing after what the fenced owner left")
	})
}
