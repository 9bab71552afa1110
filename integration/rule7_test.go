package integration

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/stack"
	"kudos/integration/testrun"
	"kudos/integration/tier"
	"kudos/ops/topics"
	"kudos/processor"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// newBareSystem has its own Kafka and a MariaDB, with topics and tables; the code under test is linked into the test.
func newBareSystem(t testing.TB, partitions int) *system {
	s := &system{t: t, log: slog.New(slog.DiscardHandler), partitions: partitions}
	s.kafka = stack.KafkaForTest(t, stack.KafkaOptions{Log: s.log})
	s.brokers, s.dsn = s.kafka.Brokers(), shared.MariaDB(t).NewDatabase(t)
	kafka, database := s.servers()
	_, err := topics.Apply(t.Context(), kafka,
		topics.Options{Partitions: int32(partitions), ReplicationFactor: 1}, s.log)
	require.NoError(t, err)
	require.NoError(t, sql.Migrate(t.Context(), database, s.log))
	s.connect()
	return s
}

func (s *system) servers() (kafka.Options, sql.Options) {
	kafka, database := kafka.DefaultOptions(), sql.DefaultOptions()
	kafka.Brokers, database.DSN = s.brokers, s.dsn
	return kafka, database
}

// inProcess runs a processor in this process, until stop is called.
func (s *system) inProcess() (p *processor.Processor, stop func()) {
	o := processor.DefaultOptions()
	o.StateDir, o.CacheBytes = s.t.TempDir(), 16<<20
	o.ParkInterval, o.PositionCheckInterval = 200*time.Millisecond, 200*time.Millisecond
	o.SessionTimeout = 6 * time.Second
	kafka, database := s.servers()
	store, err := sql.Open(database, s.log)
	require.NoError(s.t, err)
	p, err = processor.New(o, kafka, store, s.log, prometheus.NewRegistry())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, store.Close()) })
	return p, testrun.Start(s.t, "the processor", time.Minute, p.Run)
}

func (s *system) likeEverywhere(users ...uint64) {
	s.pour(func(send func(schema.Event)) {
		for p := range int32(s.partitions) {
			for _, user := range users {
				send(like(s.postIn(p), user, 1e12))
			}
		}
	})
}

// progress returns the progress records of all partitions, once no transaction is open.
func (s *system) progress() map[int32]schema.Progress {
	all := map[int32]schema.Progress{}
	s.requireDecided(schema.TopicState)
	s.readAll(schema.TopicState, func(rec *kgo.Record) {
		if string(rec.Key) == schema.StateProgressKey {
			var p schema.Progress
			require.NoError(s.t, schema.DecodeProgress(rec.Value, &p))
			all[rec.Partition] = p
		}
	})
	return all
}

func progressRecord(partition int32, p *schema.Progress) *kgo.Record {
	return &kgo.Record{Topic: schema.TopicState, Partition: partition, Key: []byte(schema.StateProgressKey),
		Value: schema.AppendProgress(nil, p)}
}

// TestRule7 does every kind of damage that a retry cannot repair, on a real broker and database, each in another
// partition. It must park with the right reason, the undamaged one must continue, and a repair must be detected.
func TestRule7(t *testing.T) {
	parallel(t, tier.Test)
	s := newBareSystem(t, 8)
	_, stop := s.inProcess()
	s.likeEverywhere(1, 2, 3, 4, 5)
	s.drain(time.Minute)
	stop()
	// Makes the next leader epoch start after what has been folded.
	require.NoError(t, s.kafka.Kill())
	require.NoError(t, s.kafka.Start(t.Context()))
	s.likeEverywhere(6, 7, 8)

	right := s.damageFold()
	s.damageCounts(right)
	counts := s.mysqlCounts()
	p, _ := s.inProcess()
	waitFor(t, time.Minute, "all partitions to be opened", func() bool {
		said := fmt.Sprint(p.Ready())
		return !strings.Contains(said, "waiting for the group") && !strings.Contains(said, "starting")
	})
	for _, damage := range damages(right) {
		t.Run(fmt.Sprintf("%s %d: %s", damage.topic, damage.partition, damage.name), func(t *testing.T) {
			s.requireParked(t, p, damage.topic, damage.partition, damage.reason)
		})
	}
	t.Run("the undamaged partition continues", func(t *testing.T) {
		waitFor(t, time.Minute, "the undamaged partition to continue", func() bool {
			return s.mysqlCounts()[s.postIn(0)].likes == 8
		})
	})
	for partition := int32(1); partition < 8; partition++ {
		t.Run(fmt.Sprintf("the counts of partition %d do not change", partition), func(t *testing.T) {
			require.Equal(t, counts[s.postIn(partition)], s.mysqlCounts()[s.postIn(partition)])
		})
	}
	t.Run("a repaired partition resumes", func(t *testing.T) {
		progress := right[4]
		s.write(progressRecord(4, &progress))
		waitFor(t, time.Minute, "likes/4 to resume after its repair", func() bool {
			return !strings.Contains(fmt.Sprint(p.Ready()), "likes/4 ")
		})
	})
}

// damage is the damage done by damageFold or damageCounts, and the reason that its partition must report.
type damage struct {
	topic        string
	partition    int32
	name, reason string
}

func damages(right map[int32]schema.Progress) []damage {
	seqs := func(have, want uint64) string { return fmt.Sprintf("has seq %d where %d was expected", have, want) }
	return []damage{
		{schema.TopicLikes, 1, "no progress record", "partition 1 of the state table has no progress record"},
		{schema.TopicLikes, 2, "another committed offset", "but the group has committed 1"},
		{schema.TopicLikes, 3, "another topic", "topic likes was deleted and recreated"},
		{schema.TopicLikes, 4, "another cluster", "the state table belongs to cluster another-cluster"},
		{schema.TopicLikes, 5, "another partition count",
			"topic likes has 8 partitions, but the state table was created for 16"},
		{schema.TopicLikes, 6, "records were deleted",
			fmt.Sprintf("offset %d is next, but likes/6 holds 8 to 8", right[6].NextOffset)},
		{schema.TopicLikes, 7, "an unclean leader election", "data was lost by an unclean leader election"},
		{schema.TopicUpdates, 1, "a seq is missing", seqs(right[1].NextSeq+1, right[1].NextSeq)},
		{schema.TopicUpdates, 2, "a seq is repeated", seqs(right[2].NextSeq-1, right[2].NextSeq)},
		{schema.TopicUpdates, 3, "no position in MySQL", "no applied_offset row"},
		{schema.TopicUpdates, 4, "counts of another topic", "the counts in MySQL come from topic id"},
		{schema.TopicUpdates, 5, "counts of another partition count", "the counts in MySQL come from topic id"},
		{schema.TopicUpdates, 6, "MySQL is ahead", "MySQL is at offset"},
	}
}

// requireParked waits until a partition is parked, with an action.
func (s *system) requireParked(t *testing.T, p *processor.Processor, topic string, partition int32, reason string) {
	var last string
	waitSaid(t, 20*time.Second, fmt.Sprintf("%s/%d to park: %s", topic, partition, reason), func() (bool, any) {
		for line := range strings.SplitSeq(strings.ReplaceAll(fmt.Sprint(p.Ready()), "; ", "\n"), "\n") {
			if _, status, ok := strings.Cut(line, fmt.Sprintf("%s/%d ", topic, partition)); ok {
				last = status
			}
		}
		return strings.HasPrefix(last, "parked") && strings.Contains(last, reason) &&
			strings.Contains(last, "(action: ") && !strings.Contains(last, "(action: none"), last
	})
}

// damageFold damages the fold's inputs, and returns the right progress records.
func (s *system) damageFold() map[int32]schema.Progress {
	right := s.progress()
	p3, p4, p5, p7 := right[3], right[4], right[5], right[7]
	p3.SourceID[0]++
	p4.ClusterID = "another-cluster"
	p5.Partitions = 16
	p7.NextOffset++ // an offset of the next epoch, with the epoch before
	s.write(&kgo.Record{Topic: schema.TopicState, Partition: 1, Key: []byte(schema.StateProgressKey)},
		progressRecord(3, &p3), progressRecord(4, &p4), progressRecord(5, &p5), progressRecord(7, &p7))
	require.NoError(s.t, s.commitFold(map[int32]int64{2: 1, 7: p7.NextOffset}))
	s.deleteBefore(schema.TopicLikes, map[int32]int64{6: 8})
	return right
}

func (s *system) damageCounts(right map[int32]schema.Progress) {
	s.write(foreignUpdate(1, s.postIn(1), right[1].NextSeq+1, 1000),
		foreignUpdate(2, s.postIn(2), right[2].NextSeq-1, 1000))
	for partition, statement := range map[int32]string{
		3: "DELETE FROM applied_offset WHERE partition_id = ?",
		4: "UPDATE applied_offset SET topic_id = '000000000000000000000000000000aa' WHERE partition_id = ?",
		5: "UPDATE applied_offset SET partitions = 16 WHERE partition_id = ?",
		6: "UPDATE applied_offset SET next_offset = next_offset + 1000 WHERE partition_id = ?",
	} {
		s.db.MustExec(statement, partition)
	}
}
