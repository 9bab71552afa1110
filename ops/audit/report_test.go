package audit

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReportText is what a person reads, to the letter.
func TestReportText(t *testing.T) {
	t.Parallel()
	report := func(change func(r *Report)) *Report {
		r := newReport(true)
		r.Equal, r.Seconds = true, 1.234
		r.Partitions = []PartitionReport{{Compared: true}, {}}
		r.Posts.Compared, r.Hours.Compared = 7, 9
		change(r)
		return r
	}
	counts := func(likes, dislikes int64) CountsReport { return CountsReport{likes, dislikes} }
	noon := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		report      *Report
		differences int64
		text        string
	}{
		"equal": {report(func(*Report) {}), 0, `
MySQL is what the stream says: 7 posts in 1 of 2 partitions and 9 rows of like_hourly compared in 1.23s
`},
		"not known": {report(func(r *Report) { r.Deep, r.Unknown = false, []string{"post 5"} }), 0, `
not known: post 5
no difference as far as can be known: 7 posts in 1 of 2 partitions compared in 1.23s
next: ` + "`kudos audit --deep`" + ` works the counts out from the state table
`},
		"posts and hours": {report(func(r *Report) {
			r.Equal = false
			for _, p := range []Pair{
				{counts(3, 1), counts(5, 4)}, {counts(-1, 2), counts(0, 0)}, {counts(2, -1), counts(1, 1)},
				{counts(0, 0), counts(-1, 0)}, {counts(0, 0), counts(0, -1)}, {counts(4, 0), counts(4, 1)},
			} {
				r.Posts.found(PostRow{11, 1, p}, 5)
			}
			r.Hours.found(HourRow{noon, "US", 0, Pair{counts(0, 0), counts(0, 2)}}, 1)
		}), 7, `
6 of 7 posts differ (likes / dislikes):
  post  partition  MySQL   stream  difference
  11    1          3 / 1   5 / 4   -2 / -3
  11    1          -1 / 2  0 / 0   -1 / +2  negative
  11    1          2 / -1  1 / 1   +1 / -2  negative
  11    1          0 / 0   -1 / 0  +1 / +0  negative
  11    1          0 / 0   0 / -1  +0 / +1  negative
  … and 1 more (--limit shows more)
1 of 9 rows of like_hourly differ (likes / dislikes):
  hour (UTC)        region  partition  MySQL  stream  difference
  2024-05-01 12:00  US      0          0 / 0  0 / 2   +0 / -2
7 differences: 7 posts in 1 of 2 partitions and 9 rows of like_hourly compared in 1.23s
next: ` + "`kudos rebuild` makes MySQL anew from the state table while processors run; `kudos rebuild --dry-run`" + ` shows what it would change
`},
		"state, strays and a problem": {report(func(r *Report) {
			r.Equal, r.Problems = false, []string{"no position"}
			r.State.found(StateRow{12, 1, counts(3, 0), counts(2, 0)}, 1)
			r.State.found(StateRow{13, 1, counts(3, 0), counts(2, 0)}, 1)
			r.State.found(StateRow{14, 1, counts(3, 0), counts(2, 0)}, 1)
			r.Strays.found(StrayRow{Table: "like_count", Row: "post 15", Partition: 1, Shard: 0, Belongs: 1, MySQL: counts(1, 0)}, 1)
		}), 5, `
3 posts have counts in the state table that are not those of their pairs (likes / dislikes):
  post  partition  counts  pairs
  12    1          3 / 0   2 / 0
  … and 2 more (--limit shows more)
1 rows are in another shard than that of their partition (likes / dislikes):
  table       row      partition  in shard  belongs to  MySQL
  like_count  post 15  1          0         1           1 / 0
problem: no position
5 differences: 7 posts in 1 of 2 partitions and 9 rows of like_hourly compared in 1.23s
next: stop the processors and run ` + "`kudos rebuild --updates`" + ` (it needs an empty like-updates), which sets the counts in the state table right, too
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.differences, test.report.Differences())
			var text strings.Builder
			require.NoError(t, test.report.WriteText(&text))
			require.Equal(t, strings.TrimPrefix(test.text, "\n"), text.String())
		})
	}
}
