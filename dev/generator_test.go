package dev

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

var begun = time.UnixMilli(1_700_000_000_000)

func generate(shape Shape, seed uint64, n int) []schema.Event {
	g := NewGenerator(shape, seed, begun)
	events := make([]schema.Event, n)
	for i := range events {
		events[i] = g.Next(begun.Add(time.Duration(i) * time.Millisecond))
	}
	return events
}

func TestGeneratorIsPure(t *testing.T) {
	events := generate(DefaultShape(), 7, 50_000)
	require.Equal(t, events, generate(DefaultShape(), 7, 50_000))
	require.NotEqual(t, events, generate(DefaultShape(), 8, 50_000))
}

func TestGeneratorMatchesItsShape(t *testing.T) {
	const n = 200_000
	shape := DefaultShape()
	shape.ViralEvery, shape.Moods = 1000*time.Hour, 0
	actions, posts, regions := map[schema.Action]int{}, map[uint64]int{}, map[schema.Region]int{}
	users := map[uint64]schema.Region{}
	late, twice, newest := 0, 0, uint64(0)
	events := generate(shape, 1, n)
	for i, e := range events {
		require.NoError(t, e.Check())
		now := begun.Add(time.Duration(i) * time.Millisecond).UnixMilli()
		require.LessOrEqual(t, e.TimeMs, now)
		require.GreaterOrEqual(t, e.TimeMs, now-shape.MaxLate.Milliseconds()-1)
		if e.TimeMs < now-1 {
			late++
		}
		if i > 0 && events[i-1] == e {
			twice++
		}
		if region, known := users[e.UserID]; known {
			require.Equal(t, region, e.Region, "user %d changed region", e.UserID)
		}
		users[e.UserID] = e.Region
		actions[e.Action]++
		posts[e.PostID]++
		regions[e.Region]++
		newest = max(newest, e.UserID)
	}
	near := func(want float64, got int, what string) {
		t.Helper()
		require.InEpsilon(t, want*n, got, 0.15, what)
	}
	near(shape.Late, late, "late events")
	near(shape.DoubleClicks, twice, "double clicks")
	near(0.8*shape.ChangedMinds, actions[schema.Unlike], "unlikes")
	near(shape.Dislikes+0.2*shape.ChangedMinds, actions[schema.Dislike], "dislikes")
	require.Greater(t, posts[1], 10*posts[20], "popularity is skewed")
	require.Greater(t, len(posts), shape.Posts/2, "but most posts get events")
	require.Greater(t, newest, uint64(shape.Users), "users join")
	require.LessOrEqual(t, newest, uint64(shape.Users+1000))
	us, _ := schema.ParseRegion("US")
	near(0.22, regions[us], "events from the US")
	require.Len(t, regions, 12)
}

func TestGeneratorLetsPostsGoViral(t *testing.T) {
	shape := DefaultShape()
	shape.ViralEvery, shape.ViralFor = 10*time.Second, 5*time.Second
	var viral int
	events := generate(shape, 3, 120_000)
	for from := 0; from < len(events); from += 1000 { // one second per iteration
		posts := map[uint64]int{}
		for _, e := range events[from : from+1000] {
			posts[e.PostID]++
		}
		for post, n := range posts {
			if post > uint64(shape.Posts/10) && n > 300 {
				viral++
			}
		}
	}
	require.Greater(t, viral, 10, "seconds in which an unpopular post is the most liked")
	require.Less(t, viral, 90)
}

// TestGeneratorIsBounded: in a long simulation new users and new reactions cease, and counts still change.
func TestGeneratorIsBounded(t *testing.T) {
	shape := DefaultShape()
	shape.Posts, shape.Users, shape.MaxUsers, shape.Reactions = 200, 1_000, 1_500, 5_000
	shape.ViralPosts, shape.ViralAudience = 4, 500
	g, now := NewGenerator(shape, 5, begun), begun
	reactions := map[[2]uint64]schema.Action{}
	hour := func() (changes int) {
		for range 72_000 { // 20 per second
			now = now.Add(50 * time.Millisecond)
			e := g.Next(now)
			require.LessOrEqual(t, e.UserID, uint64(shape.MaxUsers))
			key := [2]uint64{e.PostID, e.UserID}
			if reactions[key] != e.Action {
				reactions[key] = e.Action
				changes++
			}
		}
		return changes
	}
	for range 4 {
		hour()
	}
	before := len(reactions)
	changes := hour()
	require.Less(t, before, 2*(shape.Reactions+shape.Posts+shape.ViralPosts*shape.ViralAudience))
	require.InEpsilon(t, before, len(reactions), 0.05, "after hours there are hardly any new reactions")
	require.Greater(t, changes, 10_000, "but they change")
}

func TestPastIsADayInOrder(t *testing.T) {
	g := NewGenerator(DefaultShape(), 1, begun)
	const n = 24_000
	hours, last, users := map[int64]int{}, begun.Add(-24*time.Hour).UnixMilli(), map[uint64]bool{}
	for i := range n {
		e := g.Past(i, n, begun)
		require.NoError(t, e.Check())
		require.GreaterOrEqual(t, e.TimeMs, last)
		require.Less(t, e.TimeMs, begun.UnixMilli())
		require.False(t, users[e.UserID], "each user has only one event")
		require.Greater(t, e.UserID, uint64(g.shape.MaxUsers))
		last, users[e.UserID] = e.TimeMs, true
		hours[(begun.UnixMilli()-1-e.TimeMs)/time.Hour.Milliseconds()]++
	}
	require.Len(t, hours, 24)
	for ago, events := range hours {
		require.Greater(t, events, 400, "%d hours ago", ago)
	}
}

func TestShapeOfOne(t *testing.T) {
	shape := DefaultShape()
	shape.Posts, shape.Users = 1, 1
	for _, e := range generate(shape, 1, 10_000) {
		require.EqualValues(t, 1, e.PostID)
	}
}

func TestRegionsAreWellFormedAndCoverEverybody(t *testing.T) {
	var sum uint64
	for _, r := range regions {
		_, wellFormed := schema.ParseRegion(r.code)
		require.True(t, wellFormed, r.code)
		sum += r.weight
	}
	require.EqualValues(t, 100, sum)
}
