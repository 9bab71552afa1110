package audit

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// text is the report as a person reads it.
func text(t *testing.T, r *Report) string {
	var b strings.Builder
	require.NoError(t, r.WriteText(&b))
	return b.String()
}

func compared(r *Report) (of []int32) {
	for _, p := range r.Partitions {
		if p.Compared {
			of = append(of, p.Partition)
		}
	}
	return of
}

func TestAuditNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for p := range int32(partitions) {
		w.like(p, time.Now(), postIn(p))
		w.apply(p)
		w.like(p, time.Now(), postIn(p)) // not applied yet: no difference
	}
	for _, deep := range []bool{false, true} {
		r := w.audit(deep)
		require.True(t, r.Equal, text(t, r))
		require.Empty(t, r.Unknown)
		require.Equal(t, int64(partitions), r.Posts.Compared)
		require.Equal(t, int64(2*partitions), r.Strays.Compared, "a row of each table")
		if deep {
			require.Equal(t, int64(partitions), r.State.Compared)
		}
		require.Equal(t, []int32{0, 1}, compared(r))
	}
	wrong := postIn(1)
	w.db.MustExec("UPDATE like_count SET `count` = 7 WHERE post_id = ?", wrong)
	row := PostRow{wrong, 1, Pair{CountsReport{Likes: 7}, CountsReport{Likes: 1}}}
	r := w.audit(false)
	require.Equal(t, []PostRow{row}, r.Posts.Rows)
	require.Len(t, r.Problems, 1, "the totals differ, too")
	require.Contains(t, r.Problems[0], "partition 1: like_hourly comes to 1 / 0 in all, like_count to 7 / 0")
	require.False(t, r.Equal)
	w.db.MustExec("UPDATE like_hourly SET dislikes = 3 WHERE partition_id = 0")
	r = w.audit(true)
	require.Equal(t, []PostRow{row}, r.Posts.Rows)
	require.Equal(t, []HourRow{{likedAt.Truncate(time.Hour), "US", 0, Pair{CountsReport{1, 3}, CountsReport{1, 0}}}}, r.Hours.Rows)
	require.Empty(t, r.Problems)
	require.Contains(t, text(t, r), "2 differences")
}

// MySQL is behind: the counts at its position are those of the last update of each post
// before it, and compaction may have taken that one for a later.
func TestCountsThatMayBeCompactedAreUnknown(t *testing.T) {
	t.Parallel()
	const lag = 7 * 24 * time.Hour
	for name, c := range map[string]struct {
		age    time.Duration // of what MySQL has not applied
		behind bool
		known  bool
	}{
		"old, and applied":                     {2 * lag, false, true},
		"not applied, and not to be compacted": {lag - time.Hour, true, true},
		"not applied, and may be compacted":    {lag + time.Hour, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.like(0, time.Now().Add(-c.age), postIn(0))
			w.apply(0)
			w.like(0, time.Now().Add(-c.age), postIn(0))
			w.like(0, time.Now(), postIn(0)) // how old the first is that MySQL has not, counts
			if !c.behind {
				w.apply(0)
			}
			w.like(1, time.Now(), postIn(1))
			w.apply(1)
			r := w.audit(false)
			require.True(t, r.Equal, text(t, r))
			if c.known {
				require.Empty(t, r.Unknown)
				require.Equal(t, []int32{0, 1}, compared(r))
				require.Equal(t, int64(2), r.Posts.Compared)
			} else {
				require.Len(t, r.Unknown, 1)
				require.Contains(t, r.Unknown[0], "behind like-updates/0, which may be compacted after 168h0m0s")
				require.Equal(t, []int32{1}, compared(r))
				require.Equal(t, int64(1), r.Posts.Compared)
				require.Contains(t, text(t, r), "no difference as far as can be known")
				require.Contains(t, text(t, r), "next: `kudos audit --deep`")
			}
			deep := w.audit(true)
			require.True(t, deep.Equal, text(t, deep))
			require.Empty(t, deep.Unknown, "the state table has the counts")
			require.Equal(t, []int32{0, 1}, compared(deep))
		})
	}
}

// A shorter min.compaction.lag.ms holds as it is set on the topic.
func TestTheTopicSaysWhenItIsCompacted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.like(0, time.Now().Add(-time.Hour), postIn(0))
	require.Empty(t, w.audit(false).Unknown)
	w.setting("min.compaction.lag.ms", "60000")
	r := w.audit(false)
	require.Len(t, r.Unknown, 1)
	require.Contains(t, r.Unknown[0], "which may be compacted after 1m0s")
	require.Equal(t, []int32{1}, compared(r))
}

func TestUpdatesThatWereDeletedAreUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.like(0, time.Now(), postIn(0))
	w.like(0, time.Now(), postIn(0))
	w.apply(0)
	w.setting("cleanup.policy", "compact,delete")
	require.NoError(t, w.broker.DeleteRecords(schema.TopicUpdates, 0, 2))
	r := w.audit(false)
	require.Len(t, r.Unknown, 1)
	require.Contains(t, r.Unknown[0], "like-updates/0 begins at offset 2")
	require.True(t, r.Equal)
	require.True(t, w.audit(true).Equal)
}

// A position that does not fit its log is a difference, and not a count that is unknown.
func TestPositionsThatDoNotFit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ change, plain, deep string }{
		"seq is another":    {"next_seq = 1", "MySQL expects seq 1 at offset 2 of like-updates/0, but the next record there has seq 2", "like-updates/0 offset 2 has seq 2 where MySQL expects 1"},
		"offset is another": {"next_offset = 1", "MySQL expects seq 2 at offset 1 of like-updates/0, but the next record there has seq 1", "like-updates/0 offset 1 has seq 1 where MySQL expects 2"},
		"behind the end":    {"next_offset = 5", "MySQL stands at offset 5 of like-updates/0, which ends at 4", "MySQL stands at offset 5 of like-updates/0, which holds 0 to 4"},
		"of another topic":  {"topic_id = '000000000000000000000000000000aa'", "the counts in MySQL come from topic id 000000000000000000000000000000aa", "the counts in MySQL come from topic id 000000000000000000000000000000aa"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.like(0, time.Now(), postIn(0))
			w.apply(0)
			w.like(0, time.Now(), postIn(0))
			w.db.MustExec("UPDATE applied_offset SET " + c.change + " WHERE partition_id = 0")
			for _, deep := range []bool{false, true} {
				r := w.audit(deep)
				says := c.plain
				if deep {
					says = c.deep
				}
				require.Len(t, r.Problems, 1)
				require.Contains(t, r.Problems[0], says)
				require.False(t, r.Equal)
				require.Equal(t, []int32{1}, compared(r))
			}
		})
	}
}

// A deep audit takes nothing of the state table on trust but the pairs.
func TestDeepAuditRecountsTheStateTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	post := postIn(0)
	w.like(0, time.Now(), post)
	w.apply(0)
	w.state(0, &kgo.Record{Key: schema.AppendCountsKey(nil, post), Value: schema.AppendCounts(nil, schema.Counts{Likes: 1, Dislikes: 9})})
	r := w.audit(true)
	require.Equal(t, []StateRow{{post, 0, CountsReport{1, 9}, CountsReport{1, 0}}}, r.State.Rows)
	require.Zero(t, r.Posts.Different, "MySQL has what the pairs come to")
	require.Contains(t, text(t, r), "kudos rebuild --updates")
	require.True(t, w.audit(false).Equal, "a plain one does not look")

	other := w.parts[0].progress
	other.UpdatesID = schema.TopicID{0xaa}
	w.state(0, &kgo.Record{Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, &other)})
	r = w.audit(true)
	require.Equal(t, []string{"the state table of partition 0 belongs to another like-updates than is there now: stop the processors and run `kudos rebuild --updates`"}, r.Problems)
	require.Equal(t, []int32{1}, compared(r))
}

// What stands in the way of a comparison is an error, or a difference of its own.
func TestRowsThatNobodyKnows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.MustExec("INSERT INTO like_hourly (hour, region, partition_id, likes, dislikes) VALUES ('2024-05-01 12:00:00', 'US', 2, 3, 0)")
	require.Equal(t, []string{"like_hourly has a row of partition 2 (2024-05-01 12:00:00, US: 3 / 0), but like-updates has 2 partitions"}, w.audit(false).Problems[:1])
	w.db.MustExec("DROP TABLE like_hourly")
	_, err := Run(t.Context(), w.options(false), w.kafka, w.shards, devtest.Log())
	require.ErrorContains(t, err, "like_hourly")
}

// A snapshot that is taken again forgets the one before.
func TestSnapshotsAreTakenAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.like(0, time.Now(), postIn(0))
	w.apply(0)
	c, err := Compare(t.Context(), w.options(false), w.kafka, w.shards, devtest.Log())
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	rows := func() (n int) {
		for _, k := range []kind{mysqlCount, mysqlHour} {
			require.NoError(t, c.ledger.walk(func([]byte, []schema.Counts) error { n++; return nil }, k))
		}
		return n
	}
	require.Equal(t, 2, rows())
	w.db.MustExec("DELETE FROM like_count")
	w.db.MustExec("DELETE FROM like_hourly")
	require.NoError(t, c.copySnapshots(t.Context()))
	require.Zero(t, rows())
}

// TestProgressIsOfAllThatIsRead: what is told of the work comes to what there is.
func TestProgressIsOfAllThatIsRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.like(0, time.Now(), postIn(0))
	w.apply(0)
	w.like(0, time.Now(), postIn(0))
	var out bytes.Buffer
	o := w.options(true)
	o.Progress = Progress{Name: "audit", Out: &out}
	c, err := Compare(t.Context(), o, w.kafka, w.shards, devtest.Log())
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	end := func(topic string, p int32) int64 { return w.broker.PartitionInfo(topic, p).HighWatermark }
	state := end(schema.TopicState, 0) + end(schema.TopicState, 1)
	require.Equal(t, state, c.offsets(t.Context(), schema.TopicState, false))
	require.Equal(t, int64(2), c.offsets(t.Context(), schema.TopicUpdates, true), "a like and its progress are not applied")
	require.Contains(t, out.String(), fmt.Sprintf("audit: reading the state table: %d offsets", state))
	require.Contains(t, out.String(), "audit: reading like-updates: 2 records")
	w.broker.Close()
	require.Zero(t, c.offsets(t.Context(), schema.TopicState, false), "nobody knows")
}

// A table that was repartitioned is compared as it is by now.
func TestAuditOfALaterLayout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for p := range int32(partitions) {
		w.parts[p].progress.Layouts = 1
		w.like(p, time.Now(), postIn(p))
		w.apply(p)
	}
	for _, deep := range []bool{false, true} {
		r := w.audit(deep)
		require.True(t, r.Equal, text(t, r))
		require.Empty(t, r.Unknown)
		require.Equal(t, []int32{0, 1}, compared(r))
	}
}

// A post that changed in very many minutes has several records in a transaction, each with
// the counts after them all. MySQL may stand between them.
func TestMySQLStandsBetweenTheRecordsOfAPost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sources [3]int64 // of the records
		likes   int64    // of MySQL
	}{
		"of one transaction":       {[3]int64{1, 1, 1}, 1},
		"the third is of another":  {[3]int64{1, 1, 2}, 2},
		"the second is of another": {[3]int64{1, 2, 2}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			post := postIn(0)
			var updates []*kgo.Record
			for i, source := range c.sources {
				u := schema.Update{Seq: uint64(i), SourceOffset: source, Counts: schema.Counts{Likes: 3}, Deltas: []schema.Delta{{Minute: likedAt.Unix()/60 + int64(i), Likes: 1}}}
				updates = append(updates, &kgo.Record{Topic: schema.TopicUpdates, Key: schema.AppendPostKey(nil, post), Value: schema.AppendUpdate(nil, &u)})
			}
			u := schema.ProgressUpdate(0, false)
			u.Seq, u.SourceOffset = 3, c.sources[2]
			updates = append(updates, &kgo.Record{Topic: schema.TopicUpdates, Key: []byte(schema.ProgressKey), Value: schema.AppendUpdate(nil, &u)})
			w.write(0, time.Now(), updates...)
			to := sql.Position{NextOffset: 1, NextSeq: 1}
			counts := []sql.CountDelta{{PostID: post, Likes: c.likes}}
			hours := []sql.HourDelta{{Hour: likedAt.Unix() / 3600, Region: "ZZ", Likes: c.likes}}
			require.NoError(t, w.shards.Of(0).Apply(t.Context(), w.source, 0, w.parts[0].applied, to, counts, hours))
			r := w.audit(false)
			require.True(t, r.Equal, text(t, r))
			require.Empty(t, r.Unknown)
		})
	}
}

func TestUpdatesThatEndWithinATransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := schema.Update{Counts: schema.Counts{Likes: 1}, Deltas: []schema.Delta{{Minute: 1, Likes: 1}}}
	w.write(0, time.Now(), &kgo.Record{Topic: schema.TopicUpdates, Key: schema.AppendPostKey(nil, postIn(0)), Value: schema.AppendUpdate(nil, &u)})
	w.parts[0].batches = []batch{{to: sql.Position{NextOffset: 1, NextSeq: 1}}}
	w.apply(0)
	require.Equal(t, []string{"like-updates/0 ends within a transaction, which kudos does not write"}, w.audit(false).Problems)
}

// What the state table counts as published and like-updates does not have is a difference, once it had time to come.
func TestUpdatesThatNeverCome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.like(0, time.Now(), postIn(0))
	ahead := w.parts[0].progress
	ahead.NextSeq += 3
	w.state(0, &kgo.Record{Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, &ahead)})
	require.Equal(t, []string{"like-updates/0 ends before seq 4, which the state table counts as published"}, w.audit(true).Problems)

	w.apply(0)
	w.db.MustExec("UPDATE applied_offset SET next_seq = 5 WHERE partition_id = 0")
	_, err := Run(t.Context(), w.options(true), w.kafka, w.shards, devtest.Log())
	require.ErrorContains(t, err, "like-updates/0 has no update with seq 4, which the state table counts as published")
}

// TestLocate finds each update, also one that can be read only later.
func TestLocate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 3 {
		w.like(0, time.Now(), postIn(0))
	}
	for seq := range uint64(7) {
		at, err := Locate(t.Context(), w.cl, 0, seq)
		require.NoError(t, err)
		require.Equal(t, int64(seq), at.NextOffset)
		require.Equal(t, seq, at.NextSeq)
	}
	defer w.likeLater()()
	at, err := Locate(t.Context(), w.cl, 0, 8)
	require.NoError(t, err)
	require.Equal(t, int64(8), at.NextOffset)
}

// TestReadWaitsForTheTable to come to what MySQL has applied.
func TestReadWaitsForTheTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.like(0, time.Now(), postIn(0))
	table, err := NewTable(t.TempDir(), 0, kafka.LogID{}, devtest.Log())
	require.NoError(t, err)
	defer func() {
		require.NoError(t, table.Close())
		require.Panics(t, func() { _, _ = table.Get("key") }, "it is closed")
	}()
	defer w.likeLater()()
	var read int64
	require.NoError(t, table.Read(t.Context(), w.cl, 4, func(n int64) { read += n }))
	require.Equal(t, uint64(4), table.Progress.NextSeq)
	require.Equal(t, w.broker.PartitionInfo(schema.TopicState, 0).HighWatermark, read)
}

// TestUpdatesThatBeginWhereMySQLStands: what is before them is not asked for.
func TestUpdatesThatBeginWhereMySQLStands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.like(0, time.Now(), postIn(0))
	w.apply(0)
	require.NoError(t, w.broker.DeleteRecords(schema.TopicUpdates, 0, w.parts[0].applied.NextOffset))
	r := w.audit(true)
	require.Empty(t, r.Problems)
	require.True(t, r.Equal)
}

func TestBoundsOfOptions(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		says   string
	}{
		"the least":   {func(o *Options) { o.Limit, o.Parallel, o.CacheBytes = 0, 1, 1<<20 }, ""},
		"limit":       {func(o *Options) { o.Limit = -1 }, "limit is -1"},
		"parallel":    {func(o *Options) { o.Parallel = 0 }, "parallel is 0"},
		"cache_bytes": {func(o *Options) { o.CacheBytes = 1<<20 - 1 }, "cache_bytes"},
	} {
		o := DefaultOptions()
		c.change(&o)
		if err := o.Validate(); c.says == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.says, name)
		}
	}
}

func TestProgressLines(t *testing.T) {
	var out strings.Builder
	p := Progress{Name: "audit", Out: &out}
	for _, total := range []int64{0, 8, 4} {
		phase := &Phase{}
		show, end, _ := p.lines(phase, "reading", "rows", total, time.Now())
		phase.Add(6)
		show()
		end()
	}
	require.Regexp(t, `^audit: reading: 6 rows
audit: reading: 6 rows, in .*
audit: reading: 6 rows \(75 %\)
audit: reading: 6 rows, in .*
audit: reading: 6 rows \(100 %\)
audit: reading: 6 rows, in .*
$`, out.String())
}
