package audit

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
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
