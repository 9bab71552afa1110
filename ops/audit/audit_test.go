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
	"kudos/ops/progress"
	"kudos/schema"
	"kudos/sql"
)

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
		w.likeAndApply(p)
		w.like(p, time.Now()) // not applied yet, so not a difference
	}
	for _, deep := range []bool{false, true} {
		r := w.requireEqual(deep)
		require.Equal(t, int64(partitions), r.Posts.Compared)
		require.Equal(t, int64(2*partitions), r.Strays.Compared, "a row of each table")
		if deep {
			require.Equal(t, int64(partitions), r.State.Compared)
		}
	}
	wrong := postIn(1)
	w.db.MustExec("UPDATE like_count SET `count` = 7 WHERE post_id = ?", wrong)
	row := PostRow{wrong, 1, Pair{schema.Counts{Likes: 7}, schema.Counts{Likes: 1}}}
	r := w.audit(false)
	require.Equal(t, []PostRow{row}, r.Posts.Rows)
	require.Len(t, r.Problems, 1, "the totals differ, too")
	require.Contains(t, r.Problems[0], "partition 1: like_hourly adds up to 1 / 0, like_count to 7 / 0")
	require.False(t, r.Equal)
	w.db.MustExec("UPDATE like_hourly SET dislikes = 3 WHERE partition_id = 0")
	r = w.audit(true)
	require.Equal(t, []PostRow{row}, r.Posts.Rows)
	pair := Pair{schema.Counts{Likes: 1, Dislikes: 3}, schema.Counts{Likes: 1}}
	hour := HourRow{likedAt.Truncate(time.Hour), "US", 0, pair}
	require.Equal(t, []HourRow{hour}, r.Hours.Rows)
	require.Empty(t, r.Problems)
	require.Contains(t, text(t, r), "2 differences")
}

// If MySQL is behind, compaction may have removed the update that has the counts at its position, for a later one.
func TestCountsThatMayBeCompactedAreUnknown(t *testing.T) {
	t.Parallel()
	const lag = 7 * 24 * time.Hour
	for name, c := range map[string]struct {
		age           time.Duration // of the updates that MySQL has not applied
		behind, known bool
	}{
		"old, and applied":                        {2 * lag, false, true},
		"not applied, and too new for compaction": {lag - time.Hour, true, true},
		"not applied, and may be compacted":       {lag + time.Hour, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.like(0, time.Now().Add(-c.age))
			w.apply(0)
			w.like(0, time.Now().Add(-c.age))
			w.like(0, time.Now()) // the age of the first one that MySQL has not applied counts
			if !c.behind {
				w.apply(0)
			}
			w.likeAndApply(1)
			if c.known {
				require.Equal(t, int64(2), w.requireEqual(false).Posts.Compared)
			} else {
				r := w.requireUnknown("behind like-updates/0, which may be compacted after 168h0m0s")
				require.Equal(t, int64(1), r.Posts.Compared)
				require.Contains(t, text(t, r), "no differences, but not everything could be compared")
				require.Contains(t, text(t, r), "next: run `kudos audit --deep`")
			}
			w.requireEqual(true) // a deep audit uses the state table
		})
	}
}

func TestCompactionLagIsReadFromTheTopic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.like(0, time.Now().Add(-time.Hour))
	require.Empty(t, w.audit(false).Unknown)
	w.Set(schema.TopicUpdates, "min.compaction.lag.ms", "60000")
	w.requireUnknown("which may be compacted after 1m0s")
}

func TestUpdatesThatWereDeletedAreUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.likeAndApply(0)
	w.likeAndApply(0)
	w.Set(schema.TopicUpdates, "cleanup.policy", "compact,delete")
	require.NoError(t, w.Broker.DeleteRecords(schema.TopicUpdates, 0, 2))
	w.requireUnknown("like-updates/0 starts at offset 2")
	require.True(t, w.audit(true).Equal)
	// Records before MySQL's position are not needed.
	require.NoError(t, w.Broker.DeleteRecords(schema.TopicUpdates, 0, w.parts[0].applied.NextOffset))
	w.requireEqual(true)
}

// A position that does not fit its log is a difference, not an unknown.
func TestPositionsThatDoNotFit(t *testing.T) {
	t.Parallel()
	const otherID = "the counts in MySQL come from topic id 000000000000000000000000000000aa"
	for name, c := range map[string]struct{ change, plain, deep string }{
		"another seq": {"next_seq = 1",
			"MySQL expects seq 1 at offset 2 of like-updates/0, but the next record there has seq 2",
			"like-updates/0 offset 2 has seq 2 where MySQL expects 1"},
		"another offset": {"next_offset = 1",
			"MySQL expects seq 2 at offset 1 of like-updates/0, but the next record there has seq 1",
			"like-updates/0 offset 1 has seq 1 where MySQL expects 2"},
		"past the end": {"next_offset = 5", "MySQL is at offset 5 of like-updates/0, which ends at 4",
			"MySQL is at offset 5 of like-updates/0, which holds 0 to 4"},
		"another topic": {"topic_id = '000000000000000000000000000000aa'", otherID, otherID},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.likeAndApply(0)
			w.like(0, time.Now())
			w.db.MustExec("UPDATE applied_offset SET " + c.change + " WHERE partition_id = 0")
			for deep, says := range map[bool]string{false: c.plain, true: c.deep} {
				r := w.audit(deep)
				require.Len(t, r.Problems, 1)
				require.Contains(t, r.Problems[0], says)
				require.False(t, r.Equal)
				require.Equal(t, []int32{1}, compared(r))
			}
		})
	}
}

func TestDeepAuditRecountsTheStateTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	post := postIn(0)
	w.likeAndApply(0)
	w.Write(devtest.CountsRecord(0, post, schema.Counts{Likes: 1, Dislikes: 9}))
	r := w.audit(true)
	require.Equal(t, []StateRow{{post, 0, schema.Counts{Likes: 1, Dislikes: 9}, schema.Counts{Likes: 1}}}, r.State.Rows)
	require.Zero(t, r.Posts.Different, "MySQL matches the reactions")
	require.Contains(t, text(t, r), "kudos rebuild --updates")
	require.True(t, w.audit(false).Equal, "without --deep, reactions are not read")

	other := w.parts[0].progress
	other.UpdatesID = schema.TopicID{0xaa}
	w.Write(devtest.ProgressRecord(0, other))
	r = w.audit(true)
	require.Equal(t, []string{"the state table of partition 0 belongs to a like-updates topic that is not the " +
		"current one: stop the processors and run `kudos rebuild --updates`"}, r.Problems)
	require.Equal(t, []int32{1}, compared(r))
}

// Whatever prevents a comparison is an error or a difference.
func TestUnknownRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.MustExec("INSERT INTO like_hourly (hour, region, partition_id, likes, dislikes) " +
		"VALUES ('2024-05-01 12:00:00', 'US', 2, 3, 0)")
	require.Equal(t, "like_hourly has a row of partition 2 (2024-05-01 12:00:00, US: 3 / 0), "+
		"but like-updates has 2 partitions", w.audit(false).Problems[0])
	w.db.MustExec("DROP TABLE like_hourly")
	_, err := Run(t.Context(), w.options(false), w.Options, w.shards, devtest.Log())
	require.ErrorContains(t, err, "like_hourly")
}

// A retried snapshot discards the previous one.
func TestSnapshotsAreTakenAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.likeAndApply(0)
	c := w.compare(w.options(false))
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

func TestProgressIsOfAllThatIsRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.likeAndApply(0)
	w.like(0, time.Now())
	var out bytes.Buffer
	o := w.options(true)
	o.Progress = progress.Printer{Name: "audit", Out: &out}
	c := w.compare(o)
	state := w.End(schema.TopicState, 0) + w.End(schema.TopicState, 1)
	require.Equal(t, state, c.offsets(t.Context(), schema.TopicState, false))
	later := c.offsets(t.Context(), schema.TopicUpdates, true)
	require.Equal(t, int64(2), later, "a like and its progress are not applied")
	require.Contains(t, out.String(), fmt.Sprintf("audit: reading the state table: %d offsets", state))
	require.Contains(t, out.String(), "audit: reading like-updates: 2 records")
	w.Broker.Close()
	require.Zero(t, c.offsets(t.Context(), schema.TopicState, false), "unknown")
}

func TestAuditOfALaterLayout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for p := range int32(partitions) {
		w.parts[p].progress.Layouts = 1
		w.likeAndApply(p)
	}
	w.requireEqual(false)
	w.requireEqual(true)
}

// A post that changes in very many minutes has several records in a transaction; MySQL's position may be between them.
func TestMySQLPositionBetweenRecordsOfAPost(t *testing.T) {
	t.Parallel()
	last := [3]int64{3, 3, 3} // in all records, as earlier builds wrote them
	for name, c := range map[string]struct {
		sources, counts [3]int64 // source offsets and counts of the records
		likes           int64    // in MySQL
	}{
		"one transaction":                       {[3]int64{1, 1, 1}, last, 1},
		"another one from the third record on":  {[3]int64{1, 1, 2}, last, 2},
		"another one from the second record on": {[3]int64{1, 2, 2}, last, 3},
		"counts after each record":              {[3]int64{1, 1, 1}, [3]int64{1, 2, 3}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			post := postIn(0)
			var updates []*kgo.Record
			for i, source := range c.sources {
				updates = append(updates, devtest.UpdateRecord(0, post, schema.Update{Seq: uint64(i),
					SourceOffset: source, Counts: schema.Counts{Likes: c.counts[i]},
					Deltas: []schema.Delta{{Minute: likedAt.Unix()/60 + int64(i), Likes: 1}}}))
			}
			u := schema.ProgressUpdate(0, false)
			u.Seq, u.SourceOffset = 3, c.sources[2]
			w.Write(append(updates, devtest.UpdateRecord(0, 0, u))...)
			w.parts[0].batches = []batch{{
				sql.Position{NextOffset: 1, NextSeq: 1},
				[]sql.CountDelta{{PostID: post, Likes: c.likes}},
				[]sql.HourDelta{{Hour: likedAt.Unix() / 3600, Region: "ZZ", Likes: c.likes}},
			}}
			w.apply(0)
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
	w.Write(devtest.UpdateRecord(0, postIn(0), u))
	w.parts[0].batches = []batch{{to: sql.Position{NextOffset: 1, NextSeq: 1}}}
	w.apply(0)
	says := "like-updates/0 ends with an incomplete transaction, which kudos never writes"
	require.Equal(t, []string{says}, w.audit(false).Problems)
}

// Updates that the state table counts as published but like-updates does not have are a difference, after a timeout.
func TestUpdatesNeverArrive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.like(0, time.Now())
	ahead := w.parts[0].progress
	ahead.NextSeq += 3
	w.Write(devtest.ProgressRecord(0, ahead))
	says := "like-updates/0 ends before seq 4, which the state table counts as published"
	require.Equal(t, []string{says}, w.audit(true).Problems)

	w.apply(0)
	w.db.MustExec("UPDATE applied_offset SET next_seq = 5 WHERE partition_id = 0")
	says = "MySQL expects seq 5 at offset 2 of like-updates/0, but the next update there will have seq 2"
	require.Equal(t, []string{says}, w.audit(false).Problems)
	_, err := Run(t.Context(), w.options(true), w.Options, w.shards, devtest.Log())
	require.ErrorContains(t, err, "like-updates/0 has no update with seq 4, which the state table counts as published")
}

// TestLocate finds every update, even one that becomes readable later.
func TestLocate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 3 {
		w.like(0, time.Now())
	}
	requireAt := func(seq uint64) {
		at, err := Locate(t.Context(), w.Client, 0, seq)
		require.NoError(t, err)
		require.Equal(t, int64(seq), at.NextOffset)
		require.Equal(t, seq, at.NextSeq)
	}
	for seq := range uint64(7) {
		requireAt(seq)
	}
	defer w.likeLater(schema.TopicUpdates)()
	requireAt(8)
}

func TestReadWaitsForTheTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.like(0, time.Now())
	table, err := NewTable(t.TempDir(), 0, devtest.Log())
	require.NoError(t, err)
	defer func() {
		require.NoError(t, table.Close())
		require.Panics(t, func() { _, _ = table.Find([]byte("key"), nil) }, "the table is closed")
	}()
	defer w.likeLater(schema.TopicState)()
	var read int64
	require.NoError(t, table.Read(t.Context(), w.Client, 4, func(n int64) { read += n }))
	require.Equal(t, uint64(4), table.Progress.NextSeq)
	require.Equal(t, w.End(schema.TopicState, 0), read)
}

func TestBoundsOfOptions(t *testing.T) {
	require.NoError(t, Options{Limit: 0, Parallel: 1}.Validate())
	err := Options{Limit: -1, Parallel: 0}.Validate()
	require.ErrorContains(t, err, "limit is -1")
	require.ErrorContains(t, err, "parallel is 0")
}
