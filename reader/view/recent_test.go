package view

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/store"
)

// Cached counts are as of the same position as the others, whether they were read or written before.
func TestRecentCountsAreAsOfThePosition(t *testing.T) {
	t.Parallel()
	f := newFold(t, 31, 30)
	l, _ := f.follow(t.TempDir())
	for range 20 {
		f.requireSame(l) // caches all
		f.run(5)
		f.requireAll(l)
	}
}

// requireCounts requires these counts of all posts once the view has them.
func (f *fold) requireCounts(l *Likes, want map[uint64]schema.Counts) {
	f.t.Helper()
	f.caughtUp(l)
	for post := uint64(1); post <= posts; post++ {
		for range 2 { // from the store, and cached
			counts, _, err := l.Counts.Counts([]uint64{post})
			require.NoError(f.t, err)
			require.Equal(f.t, want[post], counts[0], "post %d", post)
		}
	}
}

// What was read before a transaction is not cached after it.
func TestOlderCountsAreNotCached(t *testing.T) {
	t.Parallel()
	f := newFold(t, 32, 0)
	l, _ := f.follow(t.TempDir())
	post := postsOf(0)[0]
	then := &countsCopy{}
	_, err := l.Counts.pin(0, func(_ *store.Store, of stream.Copy) error {
		*then = countsCopy{laneCopy: of.(*countsCopy).laneCopy, opened: of.(*countsCopy).opened}
		return nil
	}, nil)
	require.NoError(t, err)
	now := snapshot{counts: map[uint64]schema.Counts{post: {Likes: 3}}}
	f.commitAs(0, 10, now, []*kgo.Record{counts(post, 3)})
	f.caughtUp(l)
	l.Counts.keep(0, then, []askedPost{{0, post, 0}}, []schema.Counts{{Likes: 99}})
	f.requireCounts(l, now.counts)
}

// The cache returns what was put last, or nothing, and it has only so many entries.
func TestRecentCountsAreBounded(t *testing.T) {
	const bytes, entries = 64 << 10, 64 << 10 / 32
	r, random := newRecentCounts(bytes), rand.New(rand.NewPCG(1, 1))
	type key struct{ opened, post uint64 }
	last := map[key]schema.Counts{}
	for n := range int64(20 * entries) {
		k := key{1 + random.Uint64N(2), 1 + random.Uint64N(2*entries)}
		if have, ok := r.get(k.opened, k.post); ok {
			require.Equal(t, last[k], have)
		}
		last[k] = schema.Counts{Likes: n}
		r.put(k.opened, k.post, last[k])
		have, ok := r.get(k.opened, k.post)
		require.True(t, ok)
		require.Equal(t, last[k], have)
	}
	cached := 0
	for k, want := range last {
		if have, ok := r.get(k.opened, k.post); ok {
			require.Equal(t, want, have)
			cached++
		}
	}
	require.LessOrEqual(t, cached, entries)
	require.Greater(t, cached, entries*9/10)
}
