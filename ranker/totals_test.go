package ranker

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/ranker/window"
	"kudos/schema"
)

// TestSharedPostsAreListedThoughTheyAreExcluded: else, while partitions hear of an exclusion one after the other, a post
// with user buckets would be ranked by a part of its likes. The merge leaves it out.
func TestSharedPostsAreListedThoughTheyAreExcluded(t *testing.T) {
	own, shared := window.LeaderOf(1, 5, 1), window.LeaderOf(2, 3, 1)
	totals := newTotals()
	totals.leaders[schema.Global] = &window.Leaders{Best: []window.Post{own}}
	totals.shared[2] = map[schema.Region]window.Post{schema.Global: shared}
	for excluded, want := range map[uint64][]window.Post{1: {shared}, 2: {own, shared}} {
		totals.dirty[schema.Global] = true
		clear(totals.listed)
		lists, err := totals.lists(nil, &window.Config{TopN: 5, MinLikes: 1}, func(post uint64) bool { return post == excluded }, 7)
		require.NoError(t, err)
		require.Len(t, lists, 1)
		require.Equal(t, want, lists[0].Posts, "without %d", excluded)
	}
}
