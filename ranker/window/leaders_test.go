package window

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// TestLeadersAreTheBest: a list has the best of all posts in order, or reports that it does not know.
func TestLeadersAreTheBest(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			topN, posts := 1+r.IntN(5), uint64(1+r.IntN(60))
			all, excluded := map[uint64]Post{}, map[uint64]bool{}
			isExcluded := func(post uint64) bool { return excluded[post] }
			l := &Leaders{}
			known, unknown := 0, 0
			for step := range int64(1000) {
				id := r.Uint64N(posts)
				if r.IntN(20) == 0 {
					excluded[id] = !excluded[id]
				}
				p := LeaderOf(id, max(0, all[id].Likes+r.Int64N(5)-2), step/3)
				all[id] = p
				before := slices.Clone(l.Best)
				listed, members := l.Update(p, topN, isExcluded)
				require.True(t, listed || slices.Equal(before, l.Best))
				require.True(t, members || slices.Equal(ids(before), ids(l.Best)))
				have, ok := l.List(topN, 1, isExcluded)
				if !ok {
					unknown++
					l = &Leaders{} // what a search of all posts does
					for _, p := range all {
						l.Update(p, topN, isExcluded)
					}
					have, ok = l.List(topN, 1, isExcluded)
					require.True(t, ok)
				} else {
					known++
				}
				require.Equal(t, best(all, excluded, topN), append([]Post{}, have...))
			}
			require.Greater(t, known, unknown)
		})
	}
}

// TestLeadersAreFew: twice the length of a list is kept, and Update reports no more changes than there are.
func TestLeadersAreFew(t *testing.T) {
	require.Equal(t, Post{ID: 7, Likes: 3, Score: 3 * schema.ScoreOne, Reached: 5}, LeaderOf(7, 3, 5))
	nobody := func(uint64) bool { return false }
	l := &Leaders{}
	update := func(p Post) [2]bool {
		listed, members := l.Update(p, 1, nobody)
		return [2]bool{listed, members}
	}
	first, second, third := LeaderOf(1, 30, 0), LeaderOf(2, 20, 0), LeaderOf(3, 10, 0)
	require.Equal(t, [2]bool{true, true}, update(first))
	require.Equal(t, [2]bool{true, true}, update(second))
	require.Nil(t, l.Floor)
	require.Equal(t, [2]bool{true, true}, update(third))
	require.Equal(t, []Post{first, second}, l.Best)
	require.Equal(t, third, *l.Floor)
	require.Equal(t, [2]bool{false, false}, update(third), "it is the floor")
	first.Likes++
	require.Equal(t, [2]bool{true, false}, update(first), "it was already listed")
	second.Likes++
	require.Equal(t, [2]bool{true, false}, update(second))
}

func ids(posts []Post) []uint64 {
	var ids []uint64
	for _, p := range posts {
		ids = append(ids, p.ID)
	}
	slices.Sort(ids)
	return ids
}

func best(all map[uint64]Post, excluded map[uint64]bool, topN int) []Post {
	posts := []Post{}
	for id, p := range all {
		if !excluded[id] && p.Likes > 0 {
			posts = append(posts, p)
		}
	}
	slices.SortFunc(posts, Better)
	return posts[:min(len(posts), topN)]
}

func TestLeadersHaveLikes(t *testing.T) {
	nobody := func(uint64) bool { return false }
	l := &Leaders{}
	listed, members := l.Update(LeaderOf(1, 0, 0), 5, nobody)
	require.Equal(t, [2]bool{false, false}, [2]bool{listed, members})
	require.Empty(t, l.Best)
	l.Update(LeaderOf(1, 2, 0), 5, nobody)
	listed, members = l.Update(LeaderOf(1, 0, 1), 5, nobody)
	require.Equal(t, [2]bool{true, true}, [2]bool{listed, members})
	require.Empty(t, l.Best)
}

func clockAt(watermark schema.Minute) Clock {
	mark := Mark{Watermark: watermark, Idle: schema.NoMinute}
	return Clock{Since: schema.NoMinute, Seal: Seal{Clock: watermark + 2, Mark: mark}}
}

// TestAlign: a window ends where all partitions with likes in it have arrived, unless unknown or before the last end.
func TestAlign(t *testing.T) {
	none := clockAt(0)
	none.Seal.Clock, none.Seal.Watermark = schema.NoMinute, schema.NoMinute
	since := clockAt(110)
	since.Since = 105
	w := New(10, 0)
	for _, tt := range []struct {
		name      string
		clocks    []Clock
		last, end schema.Minute
		ok        bool
	}{
		{"no partition has a clock", []Clock{none, none}, schema.NoMinute, schema.NoMinute, false},
		{"only one has a clock", []Clock{clockAt(100), none}, schema.NoMinute, 101, true},
		{"the slowest decides", []Clock{clockAt(100), clockAt(105)}, schema.NoMinute, 101, true},
		{"far behind: nothing in the window", []Clock{clockAt(80), clockAt(105)}, schema.NoMinute, 106, true},
		{"just in the window", []Clock{clockAt(94), clockAt(105)}, schema.NoMinute, 95, true},
		{"going back it reaches another", []Clock{clockAt(88), clockAt(96), clockAt(105)}, schema.NoMinute, 89, true},
		{"already that far", []Clock{clockAt(100), clockAt(105)}, 101, 101, true},
		{"behind the last end", []Clock{clockAt(100), clockAt(105)}, 102, 101, false},
		{"lists of that end are unknown", []Clock{clockAt(104), since}, schema.NoMinute, 105, false},
		{"the first known lists", []Clock{clockAt(105), since}, schema.NoMinute, 106, true},
	} {
		end, ok := Align(&w, tt.clocks, tt.last)
		require.Equal(t, tt.end, end, tt.name)
		require.Equal(t, tt.ok, ok, tt.name)
	}
}

// TestForgetKeepsWhatLaterEndsNeed: At(end) is the first mark that reaches end.
func TestForgetKeepsWhatLaterEndsNeed(t *testing.T) {
	c := clockAt(110)
	for _, at := range []schema.Minute{99, 100, 104} {
		c.Marks = append(c.Marks, Mark{Watermark: at, Offset: int64(at)})
	}
	before := c.At(100)
	require.Len(t, c.Forget(100), 1)
	require.Equal(t, before, c.At(100))
	require.EqualValues(t, 104, c.At(101).Offset)
	require.Equal(t, c.Seal.Mark, c.At(105))
	require.Len(t, c.Forget(200), 2, "all of them")
	require.Empty(t, c.Marks)
}

// TestWatermark: it lags behind the clock by the allowed lateness.
func TestWatermark(t *testing.T) {
	config := configOf(New(10, 0))
	config.Lateness = 3
	p := NewPartition(config)
	require.Equal(t, schema.NoMinute, p.Watermark())
	like(p, 1, 1000)
	require.Equal(t, schema.Minute(997), p.Watermark())
}

func TestFullyDecayedScoreIsNotRanked(t *testing.T) {
	p := NewPartition(configOf(New(60, 1)))
	like(p, 1, 1000)
	require.Equal(t, []uint64{1}, ids(newest(p, "1h")))
	like(p, 2, 1040)
	require.Equal(t, []uint64{2}, ids(newest(p, "1h")))
}

// TestWithdrawnLikeDoesNotHideAPost: of equal scores the earlier post is listed, even if its last changes canceled out.
func TestWithdrawnLikeDoesNotHideAPost(t *testing.T) {
	config := configOf(New(10, 0), New(60, 0))
	config.TopN = 1
	p := NewPartition(config)
	for post := range uint64(100) { // so that findBest scans by buckets
		like(p, 1000+post, 960)
	}
	like(p, 2, 999)
	like(p, 1, 1000)
	like(p, 2, 1005)
	p.Add(2, []schema.Delta{{Region: schema.Region{'D', 'E'}, Minute: 1005, Likes: -1}}, 0)
	require.Equal(t, []uint64{2}, ids(newest(p, "10m")))
}

// TestExcludedPostsLeaveAndComeBack, whether or not they have likes at the time of the exclusion.
func TestExcludedPostsLeaveAndComeBack(t *testing.T) {
	p := NewPartition(configOf(New(10, 0), New(60, 0)))
	requireListed := func(want ...uint64) {
		t.Helper()
		p.Versions = nil
		require.Equal(t, want, ids(newest(p, "10m")))
		require.Equal(t, want, ids(last(p, "1h")))
	}
	p.Exclude(1, true)
	like(p, 1, 1000)
	like(p, 2, 1000)
	requireListed(2)
	p.Exclude(1, false)
	requireListed(1, 2)
	p.Exclude(2, true)
	p.Exclude(2, true)
	requireListed(1)
}

// TestListsOfRemovedRegions: a list that is empty after a restart becomes a version.
func TestListsOfRemovedRegions(t *testing.T) {
	gone := Key{schema.Region{'F', 'R'}, "10m"}
	p := NewPartition(configOf(New(10, 0)))
	p.LoadClock(1000, schema.NoMinute, []Kept{{1, 991}}, map[Key][]Post{gone: {LeaderOf(1, 1, 995)}})
	p.MakeVersions(7)
	require.Equal(t, []Version{{Key: gone, End: 1001, Offset: 7}}, p.Versions)
	p.Versions = nil
	p.MakeVersions(8)
	require.Empty(t, p.Versions, "only once")
	require.Empty(t, p.regions)
}
