package audit

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/dev/devtest"
	"kudos/schema"
	"kudos/sql"
)

// newComparison has all partitions compared, and nothing laid down yet.
func newComparison(t *testing.T) *Comparison {
	o := sql.DefaultOptions()
	o.DSN = "user@tcp(127.0.0.1:1)/none" // nobody asks it
	db, err := sql.Open(o, devtest.Log())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	c := &Comparison{Report: newReport(true), db: db, opts: Options{Deep: true, Limit: 20}, layout: schema.Layout{Partitions: partitions}}
	for id := range int32(partitions) {
		c.parts = append(c.parts, &part{id: id, placed: true})
	}
	c.ledger, err = openLedger(t.TempDir(), 1<<20)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.ledger.close()) })
	return c
}

// side is what one side says of something, if it does.
type side []schema.Counts

func says(likes, dislikes int64) side { return side{{Likes: likes, Dislikes: dislikes}} }

// comparisons are what MySQL has, what the stream says, what of it MySQL has not applied
// yet, and whether that is a difference.
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
	{"what MySQL has not applied is taken off", says(3, 1), says(5, 0), says(2, -1), false},
	{"so is all of it", nil, says(2, 0), says(2, 0), false},
	{"what is taken off was applied", says(5, 0), says(5, 0), says(2, 0), true},
	{"negative likes, which both have", says(-1, 2), says(-1, 2), nil, true},
	{"negative dislikes, which both have", says(2, -1), says(2, -1), nil, true},
	{"negative likes, by what was taken off", says(-1, 0), says(1, 0), says(2, 0), true},
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, kinds := range []struct {
		name                 string
		mysql, stream, later kind
		key                  []byte
		found                func(*Report) (compared, different int64, rows []Pair)
	}{
		{"posts", mysqlCount, streamCount, laterCount, appendCount(nil, postIn(1), 0), func(r *Report) (int64, int64, []Pair) {
			var rows []Pair
			for _, row := range r.Posts.Rows {
				require.Equal(t, PostRow{postIn(1), 1, row.Pair}, row)
				rows = append(rows, row.Pair)
			}
			return r.Posts.Compared, r.Posts.Different, rows
		}},
		{"hours", mysqlHour, streamHour, laterHour, appendCell(nil, cell{1, 7200, schema.Region{'U', 'S'}}), func(r *Report) (int64, int64, []Pair) {
			var rows []Pair
			for _, row := range r.Hours.Rows {
				require.Equal(t, HourRow{cell{Unix: 7200}.hour(), "US", 1, row.Pair}, row)
				rows = append(rows, row.Pair)
			}
			return r.Hours.Compared, r.Hours.Different, rows
		}},
	} {
		for _, test := range comparisons {
			t.Run(kinds.name+": "+test.name, func(t *testing.T) {
				t.Parallel()
				for _, placed := range []bool{true, false} {
					c := newComparison(t)
					c.parts[1].placed = placed
					page := c.ledger.newPage()
					defer page.close()
					sums := map[kind]side{kinds.mysql: test.mysql, kinds.stream: test.stream, kinds.later: test.later}
					for kind, side := range sums {
						for _, counts := range side {
							require.NoError(t, page.set(kind, kinds.key, counts))
						}
					}
					require.NoError(t, page.flush())
					require.NoError(t, c.compare())
					compared, different, rows := kinds.found(c.Report)
					if !placed { // its position is not in this log
						require.Zero(t, compared)
						require.Zero(t, different)
						continue
					}
					require.Equal(t, int64(1), compared)
					if !test.differ {
						require.Zero(t, different)
						continue
					}
					sum := func(s side) (c schema.Counts) { return slices.Concat(s, side{{}})[0] }
					require.Equal(t, int64(1), different)
					require.Equal(t, []Pair{{shown(sum(test.mysql)), shown(sum(test.stream).Minus(sum(test.later)))}}, rows)
				}
			})
		}
	}
}

// Without the state table, like_hourly is held against like_count by its totals.
func TestCompareTotals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		posts, hours schema.Counts
		placed       bool
		problems     int
	}{
		"the same":        {schema.Counts{Likes: 2, Dislikes: 1}, schema.Counts{Likes: 2, Dislikes: 1}, true, 0},
		"other":           {schema.Counts{Likes: 2, Dislikes: 1}, schema.Counts{Likes: 2}, true, 1},
		"other, unplaced": {schema.Counts{Likes: 2, Dislikes: 1}, schema.Counts{Likes: 2}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newComparison(t)
			c.opts.Deep = false
			c.parts[1].posts, c.parts[1].hours, c.parts[1].placed = test.posts, test.hours, test.placed
			require.NoError(t, c.compare())
			require.Len(t, c.Report.Problems, test.problems)
		})
	}
}

// A ledger walks through all that any side has, in order, and adds up what was added.
func TestLedger(t *testing.T) {
	t.Parallel()
	c := newComparison(t)
	page := c.ledger.newPage()
	defer page.close()
	for _, post := range []uint64{5, 1 << 40, 2} {
		require.NoError(t, page.set(mysqlCount, appendCount(nil, post, 0), schema.Counts{Likes: int64(post)}))
	}
	for range 3 {
		require.NoError(t, page.add(streamCount, appendCount(nil, 5, 0), schema.Counts{Likes: 2, Dislikes: -1}))
		require.NoError(t, page.flush())
	}
	require.NoError(t, page.add(streamCount, appendCount(nil, 7, 0), schema.Counts{}))
	require.NoError(t, page.add(streamCount, appendCount(nil, 3, 0), schema.Counts{Dislikes: 1}))
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
	require.Equal(t, []schema.Counts{{Likes: 5}, {Likes: 6, Dislikes: -3}}, sums[5])
	require.Equal(t, []schema.Counts{{}, {Dislikes: 1}}, sums[3])
	before, after := cell{1, -3600, schema.Region{'U', 'S'}}, cell{1, 0, schema.Region{}}
	require.Negative(t, slices.Compare(appendCell(nil, before), appendCell(nil, after)), "hours before 1970 come first")
	require.Equal(t, before, decodeCell(appendCell(nil, before)))
}
