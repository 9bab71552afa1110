package ranker_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/rankings"
	"kudos/integration/rankings/day"
	"kudos/schema"
)

func aDay(events int, batching day.Batching) func(testing.TB) [][]rankings.Record {
	return func(t testing.TB) [][]rankings.Record {
		if testing.Short() { // the race detector finds in less data what it finds in more
			events = max(50, events/8)
		}
		tapes, err := day.Updates(day.Events(day.DefaultOptions(events)), batching)
		require.NoError(t, err)
		return records(t, tapes)
	}
}

// sharedDay is aDay in which every third of the 60 most active posts has user buckets.
func sharedDay(events, first int) func(testing.TB) [][]rankings.Record {
	return func(t testing.TB) [][]rankings.Record {
		active := map[uint64]int{}
		for e := range day.Events(day.DefaultOptions(events)) {
			active[e.PostID]++
		}
		posts := slices.SortedFunc(maps.Keys(active), func(a, b uint64) int {
			return cmp.Or(active[b]-active[a], cmp.Compare(a, b))
		})
		batching := day.DefaultBatching(partitions)
		var list []string
		for i := first; i < 60; i += 3 {
			list = append(list, fmt.Sprintf("%d:%d", posts[i], 2+i))
		}
		var err error
		batching.UserBuckets, err = schema.ParseUserBuckets(list)
		require.NoError(t, err)
		return aDay(events, batching)(t)
	}
}

// movieLens returns the updates of every each-th rating, by time.
func movieLens(user func(uint64) uint64, each int) func(testing.TB) [][]rankings.Record {
	return func(t testing.TB) [][]rankings.Record {
		directory := os.Getenv("KUDOS_TEST_DATA")
		if directory == "" {
			const missing = "KUDOS_TEST_DATA is not set: it names the directory that holds movielens-small/"
			require.Empty(t, os.Getenv("CI"), missing)
			t.Skip(missing)
		}
		events, err := day.MovieLens(filepath.Join(directory, "movielens-small", "ratings.csv.gz"), user)
		require.NoError(t, err)
		slices.SortStableFunc(events, func(a, b day.Event) int { return cmp.Compare(a.TimeMs, b.TimeMs) })
		var some []day.Event
		for i := 0; i < len(events); i += each {
			events[i].ArrivalMs = events[i].TimeMs
			some = append(some, events[i])
		}
		tapes, err := day.Updates(slices.Values(some), day.Batching{Partitions: partitions, MaxEvents: 1, Seed: 3})
		require.NoError(t, err)
		return records(t, tapes)
	}
}

// records ends each tape with an update at a common time: a window that has moved on waits for lagging partitions.
func records(t testing.TB, tapes []*rankings.Tape) (all [][]rankings.Record) {
	t.Helper()
	end := day.DefaultOptions(1).Start.Add(25 * time.Hour)
	for p, tape := range tapes {
		records := slices.Collect(tape.All())
		last := records[len(records)-1]
		var u schema.Update
		require.NoError(t, schema.DecodeUpdate(last.Value, &u))
		const nobodyElseLikes = 1 << 40
		post := postsOf(int32(p), nobodyElseLikes, 1)[0]
		u = schema.Update{
			Seq: u.Seq + 1, Counts: schema.Counts{Likes: 1}, SourceOffset: u.SourceOffset + 1,
			Deltas: []schema.Delta{{Region: day.Regions[0], Minute: end.Unix() / 60, Likes: 1}},
		}
		all = append(all, append(records, likeRecord(tape.End(), max(last.TimeMs, end.UnixMilli()), post, &u)))
	}
	return all
}

func likeRecord(offset, timeMs int64, post uint64, u *schema.Update) rankings.Record {
	return rankings.Record{
		Offset: offset, TimeMs: timeMs, Key: schema.AppendPostKey(nil, post), Value: schema.AppendUpdate(nil, u),
	}
}

func postsOf(partition int32, from uint64, n int) (posts []uint64) {
	for post := from; len(posts) < n; post++ {
		if schema.PartitionFor(post, partitions) == partition {
			posts = append(posts, post)
		}
	}
	return posts
}

// likes builds tapes of likes in one minute, one update each.
type likes struct {
	minute int64
	tapes  [partitions][]rankings.Record
	counts map[likesOf]int64
}

type likesOf struct {
	partition int32
	post      uint64
}

// add appends likes of a post to a partition. With buckets, its updates say that the post is in several partitions.
func (l *likes) add(p int32, post uint64, n int, region schema.Region, buckets int32) {
	for range n {
		l.counts[likesOf{p, post}]++
		i := int64(len(l.tapes[p]))
		l.tapes[p] = append(l.tapes[p], likeRecord(i, l.minute*60_000, post, &schema.Update{
			Seq: uint64(i), Counts: schema.Counts{Likes: l.counts[likesOf{p, post}]},
			SourceOffset: i + 1, Buckets: buckets,
			Deltas: []schema.Delta{{Region: region, Minute: l.minute, Likes: 1}},
		}))
	}
}

// likesAt returns a tape per partition: n likes of one post by different users, in one minute.
func likesAt(minute int64, n int) [][]rankings.Record {
	l := &likes{minute: minute, counts: map[likesOf]int64{}}
	for p := range int32(partitions) {
		l.add(p, postsOf(p, 1, 1)[0], n, day.Regions[0], 0)
	}
	return l.tapes[:]
}
