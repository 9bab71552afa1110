package ranker_test

// Posts that are in several partitions: they have user buckets.

import (
	"testing"

	"kudos/integration/rankings"
	"kudos/integration/rankings/day"
	"kudos/ranker"
	"kudos/schema"
)

// toggles makes tapes out of likes, one update each.
type toggles struct {
	tapes [][]rankings.Record
	at    []int // what has been fed
	likes map[likesOf]int64
}

// likesOf names what a partition has of a post.
type likesOf struct {
	partition int32
	post      uint64
}

// like appends likes of a post, in one minute, to a partition. With buckets the post is in several
// partitions, as far as anybody knows.
func (g *toggles) like(p int32, post uint64, n int, region schema.Region, buckets int32) {
	const minute = 29_000_000
	key := likesOf{p, post}
	for range n {
		g.likes[key]++
		i := len(g.tapes[p])
		g.tapes[p] = append(g.tapes[p], rankings.Record{
			Offset: int64(i), TimeMs: minute * 60_000, Key: schema.AppendPostKey(nil, post),
			Value: schema.AppendUpdate(nil, &schema.Update{
				Seq: uint64(i), Counts: schema.Counts{Likes: g.likes[key]}, SourceOffset: int64(i) + 1, Buckets: buckets,
				Deltas: []schema.Delta{{Region: region, Minute: minute, Likes: 1}},
			}),
		})
	}
}

// TestPostsThatComeToBeShared leave the leaders, of which there have to be others; and where
// there are no others, a region is known to the next ranker by them alone.
func TestPostsThatComeToBeShared(t *testing.T) {
	t.Parallel()
	a := newArena(t, func(o *ranker.Options) { o.TopN = 2 })
	g := &toggles{tapes: make([][]rankings.Record, partitions), at: make([]int, partitions), likes: map[likesOf]int64{}}
	everywhere := func(like func(p int32, posts []uint64)) {
		t.Helper()
		for p := range int32(partitions) {
			var posts []uint64 // that are at home there
			for post := uint64(1); len(posts) < 8; post++ {
				if schema.PartitionFor(post, partitions) == p {
					posts = append(posts, post)
				}
			}
			like(p, posts)
		}
		a.feed(g.tapes, g.at, 1000)
		a.waitSettled()
	}
	here, there, elsewhere := day.Regions[0], day.Regions[1], day.Regions[2]
	a.start()
	everywhere(func(p int32, posts []uint64) {
		for i, post := range posts {
			g.like(p, post, 20-i, here, 0)
		}
	})
	everywhere(func(p int32, posts []uint64) { g.like(p, posts[0], 1, there, 2) })
	a.start()
	everywhere(func(p int32, posts []uint64) { g.like(p, posts[0], 1, here, 2) })
	everywhere(func(p int32, posts []uint64) { // more than are kept in memory
		for _, post := range posts[1:5] {
			g.like(p, post, 1, here, 2)
		}
	})
	const most, least = 1 << 40, 1 << 41 // liked in all partitions
	everywhere(func(p int32, _ []uint64) {
		g.like(p, most, 5, elsewhere, 2)
		g.like(p, least, 2, elsewhere, 2)
	})
	a.start()
	everywhere(func(p int32, _ []uint64) { g.like(p, most, 1, elsewhere, 2) })
}
