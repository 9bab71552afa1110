package main

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/integration/peers/peer"
)

// model does what the script does, as its comment says.
type model struct {
	t    *testing.T
	sets map[string]map[string]bool
}

func (m *model) run(c call) {
	m.t.Helper()
	keys, args := c.keys, c.args
	next := func(list *[]string) string {
		require.NotEmpty(m.t, *list)
		word := (*list)[0]
		*list = (*list)[1:]
		return word
	}
	number := func() int {
		n, err := strconv.Atoi(next(&args))
		require.NoError(m.t, err)
		return n
	}
	for _, post := range c.posts {
		require.Equal(m.t, "likes:"+strconv.FormatUint(post, 10), next(&keys))
		for range number() {
			set := next(&keys)
			if m.sets[set] == nil {
				m.sets[set] = map[string]bool{}
			}
			for range number() {
				m.sets[set][next(&args)] = true
			}
			for range number() {
				delete(m.sets[set], next(&args))
			}
		}
	}
	require.Empty(m.t, keys)
	require.Empty(m.t, args)
}

func TestPlannedCallsDoWhatTheEventsDoOneByOne(t *testing.T) {
	for _, shape := range []struct{ posts, users, events int }{
		{1, 50, 5_000},           // hot: many actions of each user
		{1, 1 << 40, 20_000},     // hot: calls divide sets
		{300, 100, 20_000},       // calls divide posts
		{1 << 40, 1 << 40, 5000}, // a post an event
		{1, 1, 3_000},            // more of one user than a call has room for
		{1, 1, 1},
	} {
		random := rand.New(rand.NewPCG(1, uint64(shape.posts)))
		want := map[string]map[string]bool{}
		got := &model{t: t, sets: map[string]map[string]bool{}}
		var p planner
		for range 2 { // the second batch finds what the first one left
			events := make([]peer.Event, shape.events)
			for i := range events {
				e := peer.Event{Post: random.Uint64N(uint64(shape.posts)), User: random.Uint64N(uint64(shape.users)),
					Like: random.IntN(3) > 0}
				events[i] = e
				set := "likes:" + strconv.FormatUint(e.Post, 10) + ":" + strconv.FormatUint(e.User%64, 10)
				if want[set] == nil {
					want[set] = map[string]bool{}
				}
				if user := strconv.FormatUint(e.User, 10); e.Like {
					want[set][user] = true
				} else {
					delete(want[set], user)
				}
			}
			for _, c := range p.plan(events) {
				require.LessOrEqual(t, len(c.args), 4*callUsers, "a call blocks Redis, so its size is limited")
				got.run(c)
			}
			require.Equal(t, want, got.sets, "%+v", shape)
		}
	}
	require.Empty(t, new(planner).plan(nil))
}
