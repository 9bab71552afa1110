package view

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/reader/wire"
	"kudos/schema"
)

// layoutLog writes partitions of a state table by hand.
type layoutLog struct {
	f    *fold
	next [partitions]int64
}

// commit writes a transaction of a partition that ends with a layout's progress.
func (g *layoutLog) commit(p int32, layouts uint32, buckets schema.UserBuckets, moving bool, records ...*kgo.Record) wire.Position {
	g.next[p]++
	progress := schema.Progress{
		NextOffset: 1000 + g.next[p], SourceID: g.f.id, Partitions: partitions,
		Layouts: layouts, UserBuckets: buckets, Moving: moving,
	}
	records = append(records, &kgo.Record{Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, &progress)})
	for _, rec := range records {
		rec.Partition = p
	}
	g.f.commit(p, records)
	return wire.Position{Partition: p, Offset: progress.NextOffset}
}

func counts(post uint64, likes int64) *kgo.Record {
	rec := &kgo.Record{Key: schema.AppendCountsKey(nil, post)}
	if likes != 0 {
		rec.Value = schema.AppendCounts(nil, schema.Counts{Likes: likes})
	}
	return rec
}

func liked(post, user uint64) *kgo.Record {
	return &kgo.Record{Key: schema.AppendPairKey(nil, post, user), Value: schema.AppendPair(nil, &schema.Pair{Reaction: schema.Liked, SinceMs: int64(user)})}
}

// TestASharedPost: the counts of a post with user buckets are the sum over its partitions,
// its likers are all of them in order, and a user's reaction is where the bucket is.
func TestASharedPost(t *testing.T) {
	const post, fans = 7, 200
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	g := &layoutLog{f: newFold(t, kafka, 11)}
	layout, err := schema.NewLayout(partitions, "7:64")
	require.NoError(t, err)
	homes := layout.Homes(post)
	require.Len(t, homes, partitions)

	records := map[int32][]*kgo.Record{}
	likes := map[int32]int64{}
	for user := uint64(1); user <= fans; user++ {
		p := layout.Home(post, user)
		likes[p]++
		records[p] = append(records[p], liked(post, user))
	}
	dir := t.TempDir()
	l, stop := newLikes(t, kafka, dir, true)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, p := range homes {
		at := g.commit(p, 0, layout.UserBuckets(), false, append(records[p], counts(post, likes[p]))...)
		require.NoError(t, l.Wait(ctx, at))
	}
	got, err := l.Homes(post)
	require.NoError(t, err)
	require.Equal(t, homes, got)

	for _, asked := range [][]uint64{{post}, {1, post, post}} {
		have, asOf, err := l.Counts(asked)
		require.NoError(t, err)
		require.Equal(t, schema.Counts{Likes: fans}, have[len(have)-1])
		require.Len(t, asOf, partitions)
	}
	for _, size := range []int{1, 3, fans - 1, fans, 2 * fans} {
		next, user, more := uint64(0), uint64(1), true
		for ; more; more = next != 0 {
			page, after, _, err := l.Likers(post, next, size)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page), size)
			for _, liker := range page {
				require.Equal(t, user, liker.UserID)
				user++
			}
			next = after
		}
		require.Equal(t, uint64(fans+1), user, "in pages of %d", size)
	}
	for user := uint64(1); user <= fans+1; user++ {
		reaction, asOf, err := l.Reaction(post, user)
		require.NoError(t, err)
		require.Equal(t, user <= fans, reaction.Reaction == schema.Liked)
		require.Equal(t, layout.Home(post, user), asOf.Partition)
	}
	stop()
	l, _ = newLikes(t, kafka, dir, true)
	for _, p := range homes {
		require.NoError(t, l.Wait(ctx, wire.Position{Partition: p, Offset: 1}))
	}
	have, _, err := l.Counts([]uint64{post})
	require.NoError(t, err)
	require.Equal(t, schema.Counts{Likes: fans}, have[0], "after a restart, before anything is new")
}

// TestCountsWhileTheLayoutChanges: what is on its way from one partition to another is
// found where it is, at each step, and streams are told to look anew.
func TestCountsWhileTheLayoutChanges(t *testing.T) {
	const post = 7
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	g := &layoutLog{f: newFold(t, kafka, 12)}
	target, err := schema.NewLayout(partitions, "7:64")
	require.NoError(t, err)
	home := schema.PartitionFor(post, partitions)
	user := uint64(1)
	for target.Home(post, user) == home {
		user++
	}
	to := target.Home(post, user)

	l := NewLikes(Options{StateDir: t.TempDir(), CacheBytes: 8 << 20, Reactions: true}, kafka, discardLog())
	anew := make(chan wire.Position, 100)
	l.Watch(func(asOf wire.Position, changes []Change) {
		if changes == nil {
			anew <- asOf
		}
	})
	start(t, l.Run)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, l.Wait(ctx, g.commit(home, 0, "", false, liked(post, user), counts(post, 1))))
	for range partitions { // each has become ready
		<-anew
	}
	require.Empty(t, anew)

	where := home // the reaction is
	look := func(homes int) {
		t.Helper()
		have, asOf, err := l.Counts([]uint64{post})
		require.NoError(t, err)
		require.Equal(t, schema.Counts{Likes: 1}, have[0])
		require.Len(t, asOf, homes)
		reaction, at, err := l.Reaction(post, user)
		require.NoError(t, err)
		require.Equal(t, schema.Liked, reaction.Reaction)
		page, _, _, err := l.Likers(post, 0, 10)
		require.NoError(t, err)
		require.Len(t, page, 1)
		require.Equal(t, where, at.Partition)
	}
	look(1)
	settled := target.UserBuckets()
	for p := range int32(partitions) { // locked, one after another
		at := g.commit(p, 1, settled, true)
		require.NoError(t, l.Wait(ctx, at))
		require.Equal(t, at, <-anew)
		look(partitions)
	}
	require.NoError(t, l.Wait(ctx, g.commit(to, 1, settled, true, liked(post, user), counts(post, 1))))
	require.NoError(t, l.Wait(ctx, g.commit(home, 1, settled, true,
		&kgo.Record{Key: schema.AppendPairKey(nil, post, user)}, counts(post, 0))))
	require.Empty(t, anew, "only a layout that changes is news to all")
	where = to
	look(partitions)
	for p := range int32(partitions) {
		at := g.commit(p, 1, settled, false)
		require.NoError(t, l.Wait(ctx, at))
		require.Equal(t, at, <-anew)
		look(partitions) // it has so many buckets
	}
	got, err := l.HomesOfUser(post, user)
	require.NoError(t, err)
	require.Equal(t, []int32{to}, got, "settled: nobody looks elsewhere any more")
}

// The newest layout holds; while a partition has not told of it, a reaction may be anywhere.
func TestPartitionsOfDifferentLayouts(t *testing.T) {
	var h homes
	old := schema.Progress{Partitions: 4}
	settled := schema.Progress{Partitions: 4, UserBuckets: "7:64", Layouts: 1}
	h.tell(1, &settled)
	require.Equal(t, []int32{0, 1, 2, 3}, h.of(7, 4), "it has so many buckets")
	require.Len(t, h.of(8, 4), 1)
	h.tell(0, &old) // which was away for long
	require.Len(t, h.of(8, 4), 4)
	require.Len(t, h.ofUser(7, 1, 4), 4)
	_, alone := h.only(8, 4)
	require.False(t, alone)
	h.tell(0, &settled)
	require.Len(t, h.ofUser(7, 1, 4), 1)
	_, alone = h.only(8, 4)
	require.True(t, alone)
}

// A partition that was not looked through to the end of its page may have others behind it.
func TestPagesOfSeveralPartitions(t *testing.T) {
	of := func(users ...uint64) (likers []Liker) {
		for _, user := range users {
			likers = append(likers, Liker{UserID: user})
		}
		return likers
	}
	for _, tt := range []struct {
		pages []likersPage
		limit int
		want  []Liker
		next  uint64
	}{
		{[]likersPage{{of(5), 100}, {of(7, 200), 0}}, 10, of(5, 7), 100},
		{[]likersPage{{of(5), 100}, {of(7, 90), 95}}, 10, of(5, 7, 90), 95},
		{[]likersPage{{of(5, 6), 6}, {of(1, 9), 0}}, 2, of(1, 5), 5},
		{[]likersPage{{of(), 3}, {of(4), 0}}, 2, of(), 3},
		{[]likersPage{{of(5), 0}, {of(), 0}}, 2, of(5), 0},
		{[]likersPage{{of(5), 0}, {of(1<<64 - 1), 0}}, 2, of(5, 1<<64-1), 0},
	} {
		page, next := mergeLikers(tt.pages, tt.limit)
		require.ElementsMatch(t, tt.want, page)
		require.Equal(t, tt.next, next)
	}
}
