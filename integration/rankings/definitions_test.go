package rankings

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// Each statement of docs/trending.md, with a hand-written log and ranking.

func positions(p ...schema.RankingPosition) []schema.RankingPosition { return p }

func TestLateLikes(t *testing.T) {
	d := newDiary(t, 1)
	d.update(0, 1, delta{"DE", 1000, 1}) // sets the clock; above the window, so it is not counted yet
	d.update(0, 2, delta{"DE", 990, 1})  // late, and in the window
	d.update(0, 3, delta{"DE", 988, 1})  // too late: below the window
	d.update(0, 4, delta{"DE", 998, 1})
	d.update(0, 5, delta{"DE", 989, 1}, delta{"FR", 998, 7})
	d.progress(0)
	d.right(d.ten("DE", positions(at(6)), post(5, 1), post(2, 1), post(4, 1)), post(3, 1), post(5, 1), post(2, 1))
	d.right(d.ten("global", positions(at(6)), post(5, 8), post(2, 1), post(4, 1)), post(5, 8), post(2, 1))
	d.right(d.ten("DE", positions(at(2)), post(2, 1)), post(5, 1), post(2, 1)) // at an earlier position
}

func TestWithdrawals(t *testing.T) {
	d := newDiary(t, 1)
	d.config.TopN = 10
	d.update(0, 1, delta{"DE", 995, 1})
	d.update(0, 2, delta{"DE", 995, 2})
	d.update(0, 3, delta{"DE", 980, 1})
	d.update(0, 5, delta{"DE", 991, 1}, delta{"DE", 997, 1})
	d.update(0, 6, delta{"DE", 994, 1})
	d.update(0, 7, delta{"DE", 998, 1})
	d.update(0, 2, delta{"DE", 995, -1})
	d.update(0, 3, delta{"DE", 980, -1}) // that minute has left the window
	d.update(0, 5, delta{"DE", 997, -1}) // now its newest like is from 991
	d.update(0, 7, delta{"DE", 998, -1}) // nothing is left
	d.dislike(0, 6, "DE", 1000)          // dislikes move the clock but do not count
	r := d.ten("DE", positions(at(11)), post(5, 1), post(6, 1), post(1, 1), post(2, 1))
	d.right(r, post(6, 1), post(5, 1), post(1, 1), post(2, 1))
}

func TestTies(t *testing.T) {
	d := newDiary(t, 2)
	d.update(0, 10, delta{"DE", 995, 1})
	d.update(0, 9, delta{"FR", 995, 1})
	d.update(1, 8, delta{"FR", 996, 1})
	d.dislike(0, 1, "DE", 1000)
	d.dislike(1, 8, "DE", 1000)
	whole := positions(at(3), at(2))
	d.right(d.ten("global", whole, post(9, 1), post(10, 1), post(8, 1)), post(8, 1), post(9, 1), post(10, 1))
	// In a window that hops by the hour, buckets are hours: 995 and 996 are in the same one.
	d.right(d.ranking("global", "24h", -420, 1020, 998, whole, post(8, 1), post(9, 1), post(10, 1)), post(9, 1),
		post(10, 1), post(8, 1))
	d.right(d.ranking("global", "day", 0, 1440, 998, whole, post(8, 1), post(9, 1), post(10, 1)), post(9, 1),
		post(10, 1), post(8, 1))
}

func TestDecay(t *testing.T) {
	d := newDiary(t, 1)
	d.config.Score = "decay"
	d.update(0, 1, delta{"DE", 998, 1})
	d.update(0, 2, delta{"DE", 989, 2})
	d.update(0, 3, delta{"DE", 900, 5})  // the hour before
	d.update(0, 4, delta{"DE", 419, 90}) // 10 hours before: 0.95 millionths are rounded down to 0
	d.dislike(0, 1, "DE", 1000)
	ten := d.ten("DE", positions(at(5)), scored(2, 2, 1_624_504), scored(1, 1, 1_000_000))
	d.right(ten, scored(2, 2, 1_624_505), scored(1, 1, 1_000_000)) // rounded after summing
	long := d.ranking("DE", "24h", -420, 1020, 998, positions(at(5)), scored(2, 2, 2_000_000), scored(3, 5, 1_250_000),
		scored(1, 1, 1_000_000))
	d.right(long, scored(2, 2, 1_250_000), scored(3, 5, 1_250_000), scored(1, 1, 1_000_000))
	d.config.TopN = 10
	long.TopN = 10
	d.right(long, append(long.Posts[:3:3], scored(4, 90, 0))...)
	d.right(d.ranking("DE", "day", 0, 1440, 998, positions(at(5)), post(4, 90), post(3, 5), post(2, 2), post(1, 1)),
		post(4, 90), post(3, 5), post(2, 2))
}

func TestMinLikes(t *testing.T) {
	d := newDiary(t, 1)
	d.config.MinLikes = 2
	d.update(0, 1, delta{"DE", 990, 2})
	d.update(0, 2, delta{"DE", 990, 1}, delta{"FR", 990, 1})
	d.dislike(0, 1, "DE", 1000)
	d.right(d.ten("DE", positions(at(3)), post(1, 2)), post(1, 2), post(2, 1))
	d.right(d.ten("global", positions(at(3)), post(1, 2), post(2, 2)), post(1, 2))
	d.right(d.allTime("DE", 998, positions(at(3)), post(1, 2)), post(1, 2), post(2, 1))
}

func TestExclusions(t *testing.T) {
	d := newDiary(t, 2)
	d.config.TopN = 2
	for id := range uint64(5) {
		d.update(int(id)/3, id+1, delta{"DE", 990, 5 - int64(id)})
	}
	d.dislike(0, 1, "DE", 1000)
	d.dislike(1, 4, "DE", 1000)
	d.exclude(1, `{"excluded":true,"reason":"spam"}`)
	d.exclude(4, `{"excluded":true}`)
	d.exclude(1, `{"excluded":false}`)
	d.exclude(4, ``)
	ranking := func(known0, known1, known int64, posts ...schema.RankedPost) *schema.Ranking {
		r := d.ten("DE", positions(at(4), at(3)), posts...)
		r.Positions[0].Exclusions, r.Positions[1].Exclusions, r.Exclusions = known0, known1, known
		return r
	}
	// Partition 0 lists 1 and 2, partition 1 only 5; then 1 is excluded. 3, though better than 5, is in no list.
	d.right(ranking(0, 2, 1, post(2, 4), post(5, 1)), post(2, 4), post(3, 3))
	d.right(ranking(1, 0, 1, post(2, 4), post(3, 3)), post(1, 5), post(2, 4))
	d.right(ranking(0, 0, 0, post(1, 5), post(2, 4)), post(2, 4), post(3, 3))
	d.right(ranking(3, 4, 4, post(1, 5), post(2, 4)), post(2, 4), post(3, 3))
	d.right(ranking(1, 2, 4, post(2, 4), post(3, 3)), post(1, 5), post(2, 4)) // included again, and not in the list yet
}

func TestIdleAdvance(t *testing.T) {
	d := newDiary(t, 2)
	d.update(0, 1, delta{"DE", 993, 1})
	d.update(0, 2, delta{"DE", 995, 1})
	d.update(0, 3, delta{"DE", 1000, 1})
	r := d.ranking("DE", "10m", 994, 1004, 1003, positions(idle(3, 1005), at(0)), post(2, 1), post(3, 1))
	d.right(r, post(1, 1), post(2, 1), post(3, 1))
	// Idle advance never moves a clock back.
	d.right(d.ten("DE", positions(idle(3, 997), at(0)), post(1, 1), post(2, 1)), post(2, 1))
	// A partition without any record has no clock to advance.
	d.right(d.ten("DE", positions(at(3), idle(0, 997)), post(1, 1), post(2, 1)), post(2, 1))
}

func TestAlignment(t *testing.T) {
	d := newDiary(t, 4)
	d.update(0, 1, delta{"DE", 1000, 1}) // not counted yet
	d.update(0, 2, delta{"DE", 986, 1})
	d.update(1, 3, delta{"DE", 996, 1}) // not counted yet either
	d.update(1, 4, delta{"DE", 994, 1})
	d.update(2, 5, delta{"DE", 984, 1}) // before the window
	all := positions(at(2), at(2), at(1), at(0))
	d.right(d.ranking("DE", "10m", 985, 995, 994, all, post(2, 1), post(4, 1)), post(5, 1), post(2, 1), post(4, 1))
	for _, wrong := range []*schema.Ranking{
		// The window of partition 0.
		d.ranking("DE", "10m", 989, 999, 994, all, post(4, 1), post(3, 1)),
		// A minute less than the largest.
		d.ranking("DE", "10m", 984, 994, 994, all, post(5, 1), post(2, 1)),
		// No partition has got there.
		d.ranking("DE", "10m", 1089, 1099, schema.NoMinute, all),
		d.ranking("DE", "10m", 989, 999, schema.NoMinute, positions(at(0), at(0), at(0), at(0))), // no clock at all
	} {
		d.seen(d.check(nil, wrong), "alignment")
	}
	d.seen(d.check(nil, d.ranking("DE", "10m", 985, 995, 998, all, post(2, 1), post(4, 1))), "watermark")
	d.seen(d.check(nil, d.ranking("DE", "10m", 985, 995, 982, all, post(2, 1), post(4, 1))), "watermark")

	d = newDiary(t, 2)
	d.update(0, 1, delta{"DE", 1000, 1})
	d.update(0, 2, delta{"DE", 998, 1})
	d.update(1, 3, delta{"DE", 988, 1}) // the end of the window was not reached, but the partition has nothing in it
	d.right(d.ten("DE", positions(at(2), at(1)), post(2, 1)), post(3, 1), post(2, 1))
	d.update(1, 4, delta{"DE", 989, 1}) // now it has, in the first minute
	d.seen(d.check(nil, d.ten("DE", positions(at(2), at(2)), post(4, 1), post(2, 1))), "alignment")
}

func TestBounds(t *testing.T) {
	d := newDiary(t, 1)
	d.update(0, 1, delta{"DE", 2879, 1})
	d.update(0, 2, delta{"DE", 1440, 1})
	d.update(0, 3, delta{"DE", 1439, 1})
	d.update(0, 4, delta{"DE", 2881, 1}) // the watermark is 2879: the day is not over
	d.update(0, 5, delta{"DE", 2882, 1}) // now it is
	none := schema.NoMinute
	d.right(d.ranking("DE", "day", 1440, 2880, 2879, positions(at(4)), post(2, 1), post(1, 1)), post(3, 1), post(2, 1),
		post(1, 1))
	d.right(d.ranking("DE", "day", 2880, 4320, 2880, positions(at(5)), post(4, 1), post(5, 1)), post(1, 1), post(4, 1),
		post(5, 1))
	d.right(d.ranking("DE", "24h", 1440, 2880, 2879, positions(at(4)), post(2, 1), post(1, 1)), post(3, 1), post(2, 1),
		post(1, 1))
	d.right(d.ranking("DE", "24h", 1500, 2940, 2880, positions(at(5)), post(1, 1), post(4, 1), post(5, 1)), post(2, 1),
		post(1, 1), post(4, 1))
	for _, wrong := range []*schema.Ranking{
		d.ranking("DE", "24h", 1441, 2881, 2879, positions(at(4)), post(1, 1)), // hops by the hour
		d.ranking("DE", "10m", 2870, 2881, 2879, positions(at(4)), post(1, 1)),
		d.ranking("DE", "10m", none, none, 2879, positions(at(4)), post(1, 1)),
		d.ranking("DE", "all", 1440, 2880, 2879, positions(at(4)), post(1, 1)),
		d.ranking("DE", "day", 1500, 2940, 2879, positions(at(4)), post(1, 1)),
	} {
		d.seen(d.check(nil, wrong), "bounds")
	}
}

func TestAllTime(t *testing.T) {
	d := newDiary(t, 2)
	d.update(0, 1, delta{"DE", 10, 2}, delta{"FR", 9, 1})  // at 0 s
	d.update(1, 2, delta{"FR", 8000, 3})                   // at 0 s
	d.update(0, 3, delta{"DE", 3, 2})                      // at 1 s
	d.update(0, 1, delta{"DE", 10, -1}, delta{"DE", 3, 1}) // at 2 s: moved, with the same count
	d.dislike(0, 1, "DE", 11)                              // at 3 s
	d.update(1, 4, delta{"BR", 8001, 3})                   // at 1 s
	d.update(1, 4, delta{"BR", 8001, -1})                  // at 2 s
	whole := positions(at(4), at(3))
	d.right(d.allTime("global", 9, whole, post(1, 3), post(2, 3), post(3, 2)), post(2, 3), post(1, 3), post(3, 2))
	d.right(d.allTime("DE", 9, whole, post(1, 2), post(3, 2)), post(3, 2), post(1, 2))
	d.right(d.allTime("global", 9, positions(at(4), at(2)), post(1, 3), post(2, 3), post(4, 3)),
		post(1, 3), post(4, 3), post(2, 3))
	d.right(d.allTime("BR", 9, whole, post(4, 2)), post(4, 3))
}

// A post with more than 1,000 deltas has several records. In those of earlier builds, all carry the final count.
func TestAllTimeOverSeveralRecords(t *testing.T) {
	d := newDiary(t, 1)
	d.likes[1] = 1
	d.update(0, 1, delta{"DE", 10, 1}) // carries 2
	d.likes[1] = 1
	d.update(0, 1, delta{"DE", 11, 1}) // carries 2 as well
	d.likes[2] = 2
	d.update(0, 2)
	d.right(d.allTime("global", 9, positions(at(3)), post(1, 2), post(2, 2)), post(1, 3), post(2, 2))
}

func TestWritten(t *testing.T) {
	c := newDiary(t, 1).config
	names := []string{}
	for _, k := range c.kinds() {
		names = append(names, k.name)
	}
	require.Equal(t, []string{"all", "day", "10m", "24h"}, names)
	require.Equal(t, "1h30m", written(90*time.Minute))
	require.Equal(t, "1h", written(time.Hour))
}
