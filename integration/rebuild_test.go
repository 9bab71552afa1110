package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/tier"
	"kudos/schema"
)

// rebuild runs `kudos rebuild` and expects it to work.
func (s *system) rebuild(args ...string) outcome {
	s.t.Helper()
	out := s.run(append([]string{"rebuild", "--yes", "--brokers", s.brokerList(), "--set", s.mysql()}, args...)...)
	require.Zero(s.t, out.code, "kudos rebuild %v: %s%s", args, out.stdout, out.stderr)
	return out
}

// refused runs `kudos rebuild` and expects it to say why it does not.
func (s *system) refused(says string, args ...string) {
	s.t.Helper()
	out := s.run(append([]string{"rebuild", "--yes", "--brokers", s.brokerList(), "--set", s.mysql()}, args...)...)
	require.Equal(s.t, 1, out.code, "%s%s", out.stdout, out.stderr)
	require.Contains(s.t, out.stderr, says)
}

func (s *system) topicsApply() outcome {
	return s.run("topics", "apply", "--brokers", s.brokerList(), "--set", fmt.Sprintf("topics.partitions=%d", partitions), "--set", "topics.replication_factor=1")
}

// deleteTopic returns when no broker knows the topic any more.
func (s *system) deleteTopic(name string) {
	s.t.Helper()
	adm := kadm.NewClient(s.client())
	_, err := adm.DeleteTopic(s.t.Context(), name)
	require.NoError(s.t, err)
	waitFor(s.t, time.Minute, "the topic to be gone", func() bool {
		topics, err := adm.ListTopics(s.t.Context())
		return err == nil && !topics.Has(name)
	})
}

// damageMySQL leaves wrong, missing and foreign rows.
func (s *system) damageMySQL() {
	s.db.MustExec("UPDATE like_count SET `count` = `count` + 3, dislike_count = 0 WHERE post_id % 5 = 0")
	s.db.MustExec("DELETE FROM like_count WHERE post_id % 7 = 0")
	s.db.MustExec("INSERT IGNORE INTO like_count (post_id, `count`, dislike_count) VALUES (18446744073709551615, -1, 0)")
	s.db.MustExec("DELETE FROM like_hourly WHERE region = 'US'")
}

// MySQL is made anew again and again while likes pour in and the processor works: the
// counts are exact after it.
func TestRebuildWhileLikesPourIn(t *testing.T) {
	tier.Test(t)
	t.Parallel()
	s := newRealSystem(t)
	s.rebuildUnderLoad()
}

func TestRebuildOfMySQLItself(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newSystemOn(t, shared.MySQL(t))
	s.rebuildUnderLoad()
}

func (s *system) rebuildUnderLoad() {
	t := s.t
	processor := s.processor("processor-0", "--set", "processor.max_batch=700")
	require.NoError(t, processor.Start(t.Context()))
	stop := s.keepToggling(2, 3000, 400)
	waitFor(t, time.Minute, "counts", func() bool { return len(s.mysqlCounts()) > 2000 })
	s.rebuild()
	s.audit(0, "--deep")
	for range 3 {
		s.damageMySQL()
		require.Greater(t, s.audit(3, "--deep").Posts.Different, int64(100))
		out := s.rebuild("--output", "json")
		var result struct {
			Report  auditReport
			Posts   int64
			Swapped bool
		}
		require.NoError(t, json.Unmarshal([]byte(out.stdout), &result))
		require.True(t, result.Swapped)
		require.Greater(t, result.Posts, int64(2000))
		require.Greater(t, result.Report.Posts.Different, int64(100), "the difference there was")
		s.audit(0, "--deep")
	}
	// A position that is lost parks its partition, and is made anew too.
	s.db.MustExec("DELETE FROM applied_offset WHERE partition_id IN (1, 2)")
	require.Contains(t, strings.Join(s.audit(3).Problems, "\n"), "applied_offset has no row for partition 1")
	s.rebuild("--drop-old")
	s.audit(0, "--deep")
	var left int
	require.NoError(t, s.db.Get(&left, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE '%rebuild%'"))
	require.Zero(t, left, "tables left behind")
	t.Logf("events %d", stop())
	s.drain(time.Minute)
	s.requireExact()
	s.audit(0)
}

// A dry run changes nothing, and without a yes nothing begins.
func TestRebuildAsksFirst(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newRealSystem(t)
	s.toggles(5, 5000)
	processor := s.processor("processor-0")
	require.NoError(t, processor.Start(t.Context()))
	s.drain(time.Minute)
	s.damageMySQL()
	before := s.mysqlCounts()
	out := s.run("rebuild", "--brokers", s.brokerList(), "--set", s.mysql())
	require.Equal(t, 2, out.code)
	require.Contains(t, out.stderr, "give --yes")
	out = s.run("rebuild", "--dry-run", "--brokers", s.brokerList(), "--set", s.mysql())
	require.Zero(t, out.code, out.stderr)
	require.Contains(t, out.stdout, "posts differ")
	require.Contains(t, out.stdout, "nothing was changed")
	requireSame(t, "like_count after a dry run", before, s.mysqlCounts())
	s.refused("stop all processors first", "--updates")
	s.refused("stop all processors first", "--from-events")
	requireSame(t, "like_count after refusals", before, s.mysqlCounts())
}

// MySQL has lost everything, and like-updates its beginning: what is left is the state
// table, and that is enough.
func TestRebuildWhenUpdatesHaveLostTheirBeginning(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newRealSystem(t)
	adm := kadm.NewClient(s.client())
	s.toggles(3, 30_000)
	processor := s.processor("processor-0")
	require.NoError(t, processor.Start(t.Context()))
	s.drain(time.Minute)
	// Kafka deletes records only of topics whose policy lets it.
	policy := func(value string) {
		_, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &value}}, schema.TopicUpdates)
		require.NoError(t, err)
	}
	policy("compact,delete")
	ends, err := adm.ListCommittedOffsets(t.Context(), schema.TopicUpdates)
	require.NoError(t, err)
	offsets := ends.Offsets()
	waitFor(t, time.Minute, "the broker to take the policy", func() bool {
		deleted, err := adm.DeleteRecords(t.Context(), offsets)
		return err == nil && deleted.Error() == nil
	})
	policy("compact")
	for _, table := range []string{"like_count", "like_hourly", "applied_offset"} {
		s.db.MustExec("DELETE FROM " + table)
	}
	s.toggles(4, 2000)
	out := s.run("audit", "--brokers", s.brokerList(), "--set", s.mysql())
	require.NotZero(t, out.code, out.stdout)
	s.rebuild()
	s.toggles(5, 2000)
	s.drain(time.Minute)
	s.requireCounted()
	s.audit(0, "--deep")
	out = s.run("audit", "--brokers", s.brokerList(), "--set", s.mysql())
	require.Equal(t, 1, out.code, "the counts of posts that have not changed since are not in like-updates: %s", out.stdout)
	require.Contains(t, out.stdout, "kudos audit --deep")
}

// like-updates is compacted: plain audits go on, since the last update of each post
// stays. (That they say so when MySQL is behind what may be compacted, a test of
// ops/audit shows: TestCountsThatMayBeCompactedAreUnknown.)
func TestAuditAndRebuildOfCompactedUpdates(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newRealSystem(t)
	adm := kadm.NewClient(s.client())
	set := func(name, value string) {
		_, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, schema.TopicUpdates)
		require.NoError(t, err)
	}
	set("min.compaction.lag.ms", "0")
	set("segment.ms", "100")
	set("min.cleanable.dirty.ratio", "0.001")
	processor := s.processor("processor-0", "--set", "processor.max_batch=100")
	require.NoError(t, processor.Start(t.Context()))
	records := func() (n int) {
		s.readAll(schema.TopicUpdates, func(*kgo.Record) { n++ })
		return n
	}
	seed := uint64(10)
	written := func() (n uint64) {
		for _, seq := range s.appliedSeq() {
			n += seq
		}
		return n
	}
	waitFor(t, 3*time.Minute, "compaction", func() bool {
		seed++
		s.toggles(seed, 3000)
		s.drain(time.Minute)
		return uint64(records()) < written()*3/4
	})
	s.audit(0)
	s.audit(0, "--deep")
	s.db.MustExec("UPDATE applied_offset SET next_offset = 0, next_seq = 0")
	require.NotEmpty(t, s.audit(3, "--deep").Problems, "MySQL cannot go on there")
	waitFor(t, time.Minute, "the counts to park", func() bool {
		log, err := os.ReadFile(processor.LogPath())
		require.NoError(t, err)
		return strings.Contains(string(log), "records are missing (compacted)") && strings.Contains(string(log), "kudos rebuild")
	})
	s.rebuild()
	s.drain(time.Minute)
	s.requireCounted()
	s.audit(0)
}

// like-updates was deleted: it is made anew from the state table, while the processors
// are stopped.
func TestRebuildUpdates(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newRealSystem(t)
	s.toggles(6, 40_000)
	s.hotPost(2500)
	processor := s.processor("processor-0")
	require.NoError(t, processor.Start(t.Context()))
	s.drain(time.Minute)
	s.requireExact()
	require.NoError(t, processor.Stop())
	s.deleteTopic(schema.TopicUpdates)
	require.Zero(t, s.topicsApply().code)
	s.toggles(7, 3000) // arrive meanwhile

	s.refused("run `kudos rebuild --updates`") // MySQL alone would not do
	out := s.rebuild("--updates")
	require.Contains(t, out.stdout, "start the processors")
	// Again: nothing is left to do in Kafka.
	out = s.rebuild("--updates")
	require.Contains(t, out.stdout, "left as it is")
	s.audit(0)
	s.audit(0, "--deep")

	processor = s.processor("processor-1")
	require.NoError(t, processor.Start(t.Context()))
	s.toggles(8, 3000)
	s.drain(time.Minute)
	s.requireExact() // of like-updates too: each delta, and no gap in seq
	s.audit(0, "--deep")
}

// hotPost is liked in so many minutes that its updates take several records.
func (s *system) hotPost(minutes int) {
	records := make([]*kgo.Record, minutes)
	for i := range records {
		records[i] = record(&schema.Event{PostID: 123_456, UserID: uint64(i + 1), Action: schema.Like, TimeMs: 1_700_000_000_000 + int64(i)*60_000, Region: schema.Region{'U', 'S'}})
	}
	s.produce(records)
}

// The state table was damaged, and lost: it is made anew from the events.
func TestRebuildFromEvents(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	s := newRealSystem(t)
	s.toggles(9, 40_000)
	s.misplaced(500)
	processor := s.processor("processor-0")
	require.NoError(t, processor.Start(t.Context()))
	s.drain(time.Minute)
	s.requireExact()
	require.NoError(t, processor.Stop())
	s.toggles(10, 3000) // not folded yet

	// Damaged: a pair that never was, one that is gone, counts that are wrong.
	s.damageState()
	r := s.audit(3, "--deep")
	require.Positive(t, r.State.Different)
	out := s.rebuild("--from-events")
	require.Contains(t, out.stdout, "state records written")
	r = s.audit(0, "--deep")
	require.Zero(t, r.State.Different)
	out = s.rebuild("--from-events")
	require.Contains(t, out.stdout, "left as they are")

	// Ahead of what was published and committed: Kafka has torn a transaction.
	ahead := s.progress()[1]
	ahead.NextOffset, ahead.NextSeq = ahead.NextOffset+5, ahead.NextSeq+2
	s.write(progressRecord(1, &ahead))
	s.damageState()
	s.rebuild("--from-events")
	s.audit(0, "--deep")

	// Lost.
	s.deleteTopic(schema.TopicState)
	applied := s.topicsApply()
	require.Equal(t, 1, applied.code)
	require.Contains(t, applied.stderr, "kudos rebuild --from-events")
	s.refused("has no progress record")
	s.rebuild("--from-events")
	s.audit(0, "--deep")

	// like-updates too.
	s.deleteTopic(schema.TopicUpdates)
	require.Zero(t, s.topicsApply().code)
	s.damageState()
	s.rebuild("--from-events")
	s.audit(0)
	s.audit(0, "--deep")

	processor = s.processor("processor-1")
	require.NoError(t, processor.Start(t.Context()))
	s.toggles(11, 3000)
	s.drain(time.Minute)
	s.requireExact()
	s.audit(0, "--deep")
	require.NoError(t, processor.Stop())

	// likes has lost its start.
	adm := kadm.NewClient(s.client())
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: schema.TopicLikes, Partition: 2, At: 10, LeaderEpoch: -1})
	_, err := adm.DeleteRecords(t.Context(), offsets)
	require.NoError(t, err)
	s.refused("likes/2 begins at offset 10", "--from-events")
}

// misplaced writes events to partitions of any choice, as a foreign partitioner does:
// most have to be forwarded.
func (s *system) misplaced(n int) {
	cl := s.client(kgo.DefaultProduceTopic(schema.TopicLikes), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer cl.Close()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = record(&schema.Event{PostID: uint64(50_000 + i), UserID: 5, Action: schema.Like, TimeMs: 1_700_000_000_000, Region: schema.Region{'D', 'E'}})
		records[i].Partition = int32(i % partitions)
	}
	require.NoError(s.t, cl.ProduceSync(s.t.Context(), records...).FirstErr())
}

// damageState writes past the program to the state table.
func (s *system) damageState() {
	s.t.Helper()
	cl := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer cl.Close()
	post := uint64(1)
	at := schema.PartitionFor(post, partitions)
	ghost := schema.Pair{Reaction: schema.Liked, TimeMs: 1, Offset: 1, SinceMs: 1, Region: schema.Region{'F', 'R'}}
	records := []*kgo.Record{
		{Key: schema.AppendPairKey(nil, post, 99_999_999), Value: schema.AppendPair(nil, &ghost)},
		{Key: schema.AppendCountsKey(nil, post), Value: schema.AppendCounts(nil, schema.Counts{Likes: 1, Dislikes: 77})},
	}
	for user := range uint64(20) {
		records = append(records, &kgo.Record{Key: schema.AppendPairKey(nil, post, user+1)})
	}
	for _, rec := range records {
		rec.Topic, rec.Partition = schema.TopicState, at
	}
	require.NoError(s.t, cl.ProduceSync(s.t.Context(), records...).FirstErr())
}
