package audit

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/devtest"
	"kudos/schema"
	"kudos/sql"
)

// newComparison has all partitions placed and an empty ledger.
func newComparison(t *testing.T) *Comparison {
	o := sql.DefaultOptions()
	o.DSN = "user@tcp(127.0.0.1:1)/none" // never contacted
	db, err := sql.Open(o, devtest.Log())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	c := &Comparison{Report: newReport(true), db: db, opts: Options{Deep: true, Limit: 20},
		layout: schema.Layout{Partitions: partitions}}
	for id := range int32(partitions) {
		c.parts = append(c.parts, &part{id: id, placed: true})
	}
	c.ledger, err = openLedger(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.ledger.close()) })
	return c
}

// side is the counts that one side has of something; empty if none.
type side []schema.Counts

func says(likes, dislikes int64) side { return side{{Likes: likes, Dislikes: dislikes}} }

// comparisons are MySQL's counts, the stream's, the part that MySQL has not applied yet, and whether they differ.
var comparisons = []struct {
	name                 string
	mysql, stream, later side
	differ               bool
}{
	{"the same", says(3, 1), says(3, 1), nil, false},
	{"zero and no row", says(0, 0), nil, nil, false},
	{"another number of likes", says(3, 1), says(4, 1), nil, true},
	{"another number of dislikes", says(3, 1), says(3, 2), nil, true},
	{"no row in MySQL", nil, says(1, 0), nil, true},
	{"not in the stream", says(1, 0), nil, nil, true},
	{"what MySQL has not applied is subtracted", says(3, 1), says(5, 0), says(2, -1), false},
	{"everything is subtracted", nil, says(2, 0), says(2, 0), false},
	{"what is subtracted was applied", says(5, 0), says(5, 0), says(2, 0), true},
	{"negative likes, which both have", says(-1, 2), says(-1, 2), nil, true},
	{"negative dislikes, which both have", says(2, -1), says(2, -1), nil, true},
	{"negative likes, by subtraction", says(-1, 0), says(1, 0), says(2, 0), true},
}

func reportPost(r *Report, differ bool, pair Pair) {
	r.Posts.Compared++
	if differ {
		r.Posts.found(PostRow{postIn(1), 1, pair}, 1)
	}
}

func reportHour(r *Report, differ bool, pair Pair) {
	r.Hours.Compared++
	if differ {
		r.Hours.found(HourRow{cell{Unix: 7200}.hour(), "US", 1, pair}, 1)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		name                 string
		mysql, stream, later kind
		key                  []byte
		report               func(r *Report, differ bool, pair Pair)
	}{
		{"posts", mysqlCount, streamCount, laterCount, appendCount(nil, postIn(1), 0), reportPost},
		{"hours", mysqlHour, streamHour, laterHour, appendCell(nil, cell{1, 7200, us}), reportHour},
	} {
		for _, test := range comparisons {
			t.Run(of.name+": "+test.name, func(t *testing.T) {
				t.Parallel()
				for _, placed := range []bool{true, false} {
					c := newComparison(t)
					c.parts[1].placed = placed
					page := c.ledger.newPage()
					defer page.close()
					sums := map[kind]side{of.mysql: test.mysql, of.stream: test.stream, of.later: test.later}
					for kind, side := range sums {
						for _, counts := range side {
							require.NoError(t, page.set(kind, of.key, 1, counts))
						}
					}
					require.NoError(t, page.flush())
					require.NoError(t, c.compare(t.Context()))
					want := newReport(true)
					if placed { // otherwise its position is not in this log
						sum := func(s side) schema.Counts { return slices.Concat(s, side{{}})[0] }
						have, stream := sum(test.mysql), sum(test.stream).Minus(sum(test.later))
						of.report(want, test.differ, Pair{have, stream})
					}
					require.Equal(t, want, c.Report)
				}
			})
		}
	}
}

// Without the state table, only the totals of like_hourly and like_count are compared.
func TestCompareTotals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		posts, hours schema.Counts
		placed       bool
		problems     int
	}{
		"the same":           {schema.Counts{Likes: 2, Dislikes: 1}, schema.Counts{Likes: 2, Dislikes: 1}, true, 0},
		"other":              {schema.Counts{Likes: 2, Dislikes: 1}, schema.Counts{Likes: 2}, true, 1},
		"other, no position": {schema.Counts{Likes: 2, Dislikes: 1}, schema.Counts{Likes: 2}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newComparison(t)
			c.opts.Deep = false
			c.parts[1].posts, c.parts[1].hours, c.parts[1].placed = test.posts, test.hours, test.placed
			require.NoError(t, c.compare(t.Context()))
			require.Len(t, c.Report.Problems, test.problems)
		})
	}
}

// A ledger returns everything that any side has, in order, with the sums added up.
func TestLedger(t *testing.T) {
	t.Parallel()
	c := newComparison(t)
	page := c.ledger.newPage()
	defer page.close()
	for _, post := range []uint64{5, 1 << 40, 2} {
		require.NoError(t, page.set(mysqlCount, appendCount(nil, post, 0), 0, schema.Counts{Likes: int64(post)}))
	}
	for i := range int32(4) { // two in each partition
		require.NoError(t, page.add(streamCount, appendCount(nil, 5, 0), i/2, schema.Counts{Likes: 2, Dislikes: -1}))
		require.NoError(t, page.flush())
	}
	c.ledger.torn.Store(int32(2), true)
	require.NoError(t, page.add(streamCount, appendCount(nil, 5, 0), 2, schema.Counts{Likes: 99}))
	require.NoError(t, page.add(streamCount, appendCount(nil, 7, 0), 0, schema.Counts{}))
	require.NoError(t, page.add(streamCount, appendCount(nil, 3, 0), 0, schema.Counts{Dislikes: 1}))
	require.NoError(t, page.flush())
	var posts []uint64
	sums := map[uint64][]schema.Counts{}
	require.NoError(t, c.ledger.walk(func(suffix []byte, of []schema.Counts) error {
		post, shard := decodeCount(suffix)
		require.Zero(t, shard)
		posts, sums[post] = append(posts, post), slices.Clone(of)
		return nil
	}, mysqlCount, streamCount))
	require.Equal(t, []uint64{2, 3, 5, 1 << 40}, posts)
	require.Equal(t, []schema.Counts{{Likes: 5}, {Likes: 8, Dislikes: -4}}, sums[5])
	require.Equal(t, []schema.Counts{{}, {Dislikes: 1}}, sums[3])
	before, after := cell{1, -3600, us}, cell{1, 0, schema.Region{}}
	require.Negative(t, slices.Compare(appendCell(nil, before), appendCell(nil, after)), "hours before 1970 come first")
	require.Equal(t, before, decodeCell(appendCell(nil, before)))
}

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
	counts := func(likes, dislikes int64) schema.Counts { return schema.Counts{Likes: likes, Dislikes: dislikes} }
	noon := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		report      *Report
		differences int64
		text        string
	}{
		"equal": {report(func(*Report) {}), 0, `
MySQL matches the stream: 7 posts in 1 of 2 partitions and 9 rows of like_hourly compared in 1.23s
`},
		"unknown": {report(func(r *Report) { r.Deep, r.Unknown = false, []string{"post 5"} }), 0, `
unknown: post 5
no differences, but not everything could be compared: 7 posts in 1 of 2 partitions compared in 1.23s
next: run ` + "`kudos audit --deep`" + ` to recount from the state table
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
next: run ` + "`kudos rebuild` to rebuild MySQL from the state table while processors run; " +
			"`kudos rebuild --dry-run`" + ` shows what it would change
`},
		"state, strays and a problem": {report(func(r *Report) {
			r.Equal, r.Problems = false, []string{"no position"}
			r.State.found(StateRow{12, 1, counts(3, 0), counts(2, 0)}, 1)
			r.State.found(StateRow{13, 1, counts(3, 0), counts(2, 0)}, 1)
			r.State.found(StateRow{14, 1, counts(3, 0), counts(2, 0)}, 1)
			r.Strays.found(StrayRow{"like_count", "post 15", 1, 0, 1, counts(1, 0)}, 1)
		}), 5, `
3 posts have counts in the state table that differ from their reactions (likes / dislikes):
  post  partition  counts  reactions
  12    1          3 / 0   2 / 0
  … and 2 more (--limit shows more)
1 rows are in a shard that does not own their partition (likes / dislikes):
  table       row      partition  in shard  belongs to  MySQL
  like_count  post 15  1          0         1           1 / 0
problem: no position
5 differences: 7 posts in 1 of 2 partitions and 9 rows of like_hourly compared in 1.23s
next: stop the processors and run ` + "`kudos rebuild --updates` (like-updates must be empty), " +
			`which also corrects the counts in the state table
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
