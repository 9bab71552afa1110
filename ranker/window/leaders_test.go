package window

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"kudos/schema"

	"github.com/stretchr/testify/require"
)

// TestLeadersAreTheBest: whatever counts rise and fall, and whoever is excluded, a list
// is that of all posts in order, or says that it does not know.
func TestLeadersAreTheBest(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			topN, posts := 1+r.IntN(5), uint64(1+r.IntN(60))
			all := map[uint64]Post{}
			excluded := map[uint64]bool{}
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
					l = &Leaders{} // as if all were looked through
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

// TestLeadersAreFew: twice as many as are listed are kept, and what is told of a change is no more than has changed.
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
	require.Equal(t, [2]bool{true, false}, update(first), "it was there before")
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

// TestLeadersHaveLikes: a post that has none is not listed.
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
