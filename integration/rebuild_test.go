package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/tier"
	"kudos/schema"
)

// rebuild runs `kudos rebuild`, which must succeed, and returns its standard output.
func (s *system) rebuild(args ...string) string {
	return s.exits(0, s.on(append([]string{"rebuild", "--yes"}, args...)...)...).stdout
}

func (s *system) refused(says string, args ...string) {
	s.fails(s.on(append([]string{"rebuild", "--yes"}, args...)...), says)
}

func (s *system) topicsApply() { s.command(s.topics(s.partitions, "apply")...) }

func (s *system) damageMySQL() {
	s.db.MustExec("UPDATE like_count SET `count` = `count` + 3, dislike_count = 0 WHERE post_id % 5 = 0")
	s.db.MustExec("DELETE FROM like_count WHERE post_id % 7 = 0")
	s.db.MustExec("INSERT IGNORE INTO like_count (post_id, `count`, dislike_count) VALUES (18446744073709551615, " +
		"-1, 0)")
	s.db.MustExec("DELETE FROM like_hourly WHERE region = 'US'")
}

// MySQL is rebuilt repeatedly while likes arrive and the processor works: the counts are exact afterwards.
func TestRebuildWhileLikesPourIn(t *testing.T) {
	parallel(t, tier.Test)
	newRealSystem(t).rebuildUnderLoad()
}

func TestRebuildOfMySQLItself(t *testing.T) {
	parallel(t, tier.Turn(2))
	newSystemOn(t, shared.MySQL(t)).rebuildUnderLoad()
}

func (s *system) rebuildUnderLoad() {
	t := s.t
	s.processor("processor-0", "--set", "processor.max_batch=700").start()
	stop := s.keepCounting(2)
	s.rebuild()
	s.audit(0, "--deep")
	for range 3 {
		s.damageMySQL()
		require.Greater(t, s.audit(3, "--deep").Posts.Different, int64(100))
		var result struct {
			Report  auditReport
			Posts   int64
			Swapped bool
		}
		s.report(&result, 0, s.on("rebuild", "--yes", "--output", "json")...)
		require.True(t, result.Swapped)
		require.Greater(t, result.Posts, int64(2000))
		require.Greater(t, result.Report.Posts.Different, int64(100), "differences before the rebuild")
		s.audit(0, "--deep")
	}
	// A lost position parks its partition, and is rebuilt too.
	s.db.MustExec("DELETE FROM applied_offset WHERE partition_id IN (1, 2)")
	require.Contains(t, strings.Join(s.audit(3).Problems, "\n"), "applied_offset has no row for partition 1")
	s.rebuild("--drop-old")
	s.audit(0, "--deep")
	require.Zero(t, queryRow[int](t, s.db, "SELECT COUNT(*) FROM information_schema.tables "+
		"WHERE table_schema = DATABASE() AND table_name LIKE '%rebuild%'"), "tables left behind")
	t.Logf("events %d", stop())
	s.drainExact(time.Minute)
	s.audit(0)
}

// A dry run changes nothing, and nothing starts without a yes.
func TestRebuildAsksFirst(t *testing.T) {
	s := newFolded(t, 5000)
	s.damageMySQL()
	before := s.mysqlCounts()
	require.Contains(t, s.exits(2, s.on("rebuild")...).stderr, "use --yes")
	said := s.exits(0, s.on("rebuild", "--dry-run")...).stdout
	require.Contains(t, said, "posts differ")
	require.Contains(t, said, "nothing was changed")
	requireSame(t, "like_count after a dry run", before, s.mysqlCounts())
	s.refused("stop all processors first", "--updates")
	s.refused("stop all processors first", "--from-events")
	requireSame(t, "like_count after rejected commands", before, s.mysqlCounts())
}

// MySQL has lost everything, and like-updates its start: the state table is left, and suffices.
func TestRebuildWhenUpdatesHaveLostTheirBeginning(t *testing.T) {
	s := newFolded(t, 30_000)
	ends, err := s.oracle().ReadAll(t.Context(), schema.TopicUpdates, func(*kgo.Record) {})
	require.NoError(t, err)
	s.deleteBefore(schema.TopicUpdates, ends)
	for _, table := range []string{"like_count", "like_hourly", "applied_offset"} {
		s.db.MustExec("DELETE FROM " + table)
	}
	s.toggles(4, 2000)
	out := s.operate("audit")
	require.NotZero(t, out.code, out.stdout)
	s.rebuild()
	s.toggles(5, 2000)
	s.drain(time.Minute)
	s.requireCounted()
	s.audit(0, "--deep")
	// The counts of posts that have not changed since are not in like-updates.
	require.Contains(t, s.exits(1, s.on("audit")...).stdout, "kudos audit --deep")
}

// like-updates is compacted: plain audits still work, since the last update of each post remains. (The audit's warning
// when MySQL is behind what may be compacted is tested in ops/audit: TestCountsThatMayBeCompactedAreUnknown.)
func TestAuditAndRebuildOfCompactedUpdates(t *testing.T) {
	s := verified(t)
	s.configure(map[string]string{"min.compaction.lag.ms": "0", "segment.ms": "100",
		"min.cleanable.dirty.ratio": "0.001"}, schema.TopicUpdates)
	processor := s.processor("processor-0", "--set", "processor.max_batch=100").start()
	seed := uint64(10)
	waitFor(t, 3*time.Minute, "compaction", func() bool {
		seed++
		s.toggles(seed, 3000)
		s.drain(time.Minute)
		left := uint64(0)
		s.readAll(schema.TopicUpdates, func(*kgo.Record) { left++ })
		return left < queryRow[uint64](t, s.db, "SELECT SUM(next_seq) FROM applied_offset")*3/4
	})
	s.auditBoth()
	s.db.MustExec("UPDATE applied_offset SET next_offset = 0, next_seq = 0")
	require.NotEmpty(t, s.audit(3, "--deep").Problems, "MySQL cannot resume there")
	processor.waitLogged("records are missing (compacted)", "kudos rebuild")
	s.rebuild()
	s.drain(time.Minute)
	s.requireCounted()
	s.audit(0)
}

// like-updates was deleted: it is rebuilt from the state table while the processors are stopped.
func TestRebuildUpdates(t *testing.T) {
	s := verified(t)
	s.toggles(6, 40_000)
	s.hotPost(2500)
	processor := s.processor("processor-0").start()
	s.drainExact(time.Minute)
	processor.stop()
	s.deleteTopic(schema.TopicUpdates)
	s.topicsApply()
	s.toggles(7, 3000) // arrive meanwhile

	s.refused("run `kudos rebuild --updates`") // MySQL alone would not suffice
	require.Contains(t, s.rebuild("--updates"), "start the processors")
	// Again: nothing is left to do in Kafka.
	require.Contains(t, s.rebuild("--updates"), "left unchanged")
	s.auditBoth()

	s.processor("processor-1").start()
	s.toggles(8, 3000)
	s.drain(time.Minute)
	s.requireExact() // includes like-updates: each delta, and no gap in seq
	s.audit(0, "--deep")
}

// hotPost likes a post in so many minutes that its updates take several records.
func (s *system) hotPost(minutes int) {
	s.pour(func(send func(schema.Event)) {
		for i := range minutes {
			send(likeIn(schema.Region{'U', 'S'}, 123_456, uint64(i+1), 1_700_000_000_000+int64(i)*60_000))
		}
	})
}

// The state table was damaged, and then lost: it is rebuilt from the events.
func TestRebuildFromEvents(t *testing.T) {
	s := verified(t)
	s.toggles(9, 40_000)
	s.writeAnywhere(500)
	processor := s.processor("processor-0").start()
	s.drainExact(time.Minute)
	processor.stop()
	s.toggles(10, 3000) // not folded yet

	// Damage: a pair that never existed, a missing one, and wrong counts.
	s.damageState()
	require.Positive(t, s.audit(3, "--deep").State.Different)
	require.Contains(t, s.rebuild("--from-events"), "state records written")
	require.Zero(t, s.audit(0, "--deep").State.Different)
	require.Contains(t, s.rebuild("--from-events"), "left unchanged")

	// Ahead of the published and committed position: Kafka has torn a transaction.
	ahead := s.progress()[1]
	ahead.NextOffset, ahead.NextSeq = ahead.NextOffset+5, ahead.NextSeq+2
	s.write(progressRecord(1, &ahead))
	s.damageState()
	s.rebuild("--from-events")
	s.audit(0, "--deep")

	// The state table is lost.
	s.deleteTopic(schema.TopicState)
	s.fails(s.topics(partitions, "apply"), "kudos rebuild --from-events")
	s.refused("has no progress record")
	s.rebuild("--from-events")
	s.audit(0, "--deep")

	// And like-updates too.
	s.deleteTopic(schema.TopicUpdates)
	s.topicsApply()
	s.damageState()
	s.rebuild("--from-events")
	s.auditBoth()

	processor = s.processor("processor-1").start()
	s.toggles(11, 3000)
	s.drainExact(time.Minute)
	s.audit(0, "--deep")
	processor.stop()

	// likes has lost its start.
	s.deleteBefore(schema.TopicLikes, map[int32]int64{2: 10})
	s.refused("likes/2 starts at offset 10", "--from-events")
}

// writeAnywhere writes events to arbitrary partitions, like a foreign partitioner: most must be forwarded.
func (s *system) writeAnywhere(n int) {
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = record(likeIn(schema.Region{'D', 'E'}, uint64(50_000+i), 5, 1_700_000_000_000))
		records[i].Topic, records[i].Partition = schema.TopicLikes, int32(i%partitions)
	}
	s.write(records...)
}

// damageState writes to the state table, bypassing the program.
func (s *system) damageState() {
	post := uint64(1)
	at := schema.PartitionFor(post, partitions)
	ghost := schema.Pair{Reaction: schema.Liked, TimeMs: 1, Offset: 1, SinceMs: 1, Region: schema.Region{'F', 'R'}}
	records := []*kgo.Record{
		{Key: schema.AppendPairKey(nil, post, 99_999_999), Value: schema.AppendPair(nil, &ghost)},
		{Key: schema.AppendCountsKey(nil, post),
			Value: schema.AppendCounts(nil, schema.Counts{Likes: 1, Dislikes: 77})},
	}
	for user := range uint64(20) {
		records = append(records, &kgo.Record{Key: schema.AppendPairKey(nil, post, user+1)})
	}
	for _, rec := range records {
		rec.Topic, rec.Partition = schema.TopicState, at
	}
	s.write(records...)
}
