package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/store"
)

// layoutLog writes partitions of a state table by hand.
type layoutLog struct {
	*fold
	next [partitions]int64
}

// commit writes a transaction of a partition that ends with a progress record with a layout.
func (g *layoutLog) commit(
	p int32, layouts uint32, buckets schema.UserBuckets, migrating bool, records ...*kgo.Record,
) wire.Position {
	g.next[p]++
	next := 1000 + g.next[p]
	progress := schema.Progress{NextOffset: next, Layouts: layouts, UserBuckets: buckets, Migrating: migrating}
	return g.fold.commit(p, progress, records...)
}

func counts(post uint64, likes int64) *kgo.Record {
	rec := &kgo.Record{Key: schema.AppendCountsKey(nil, post)}
	if likes != 0 {
		rec.Value = schema.AppendCounts(nil, schema.Counts{Likes: likes})
	}
	return rec
}

func liked(post, user uint64) *kgo.Record {
	return &kgo.Record{Key: schema.AppendPairKey(nil, post, user),
		Value: schema.AppendPair(nil, &schema.Pair{Reaction: schema.Liked, SinceMs: int64(user)})}
}

// TestPostWithUserBuckets checks that the counts of a post with user buckets are the sum over its partitions, that its
// likers are all of them in order, and that a user's reaction is in the bucket's partition.
func TestPostWithUserBuckets(t *testing.T) {
	const post, fans = 7, 200
	g := &layoutLog{fold: newFold(t, 11, 0)}
	layout, err := schema.NewLayout(partitions, "7:64")
	require.NoError(t, err)
	owners := layout.PartitionsOf(post)
	require.Len(t, owners, partitions)

	records, likes := map[int32][]*kgo.Record{}, map[int32]int64{}
	for user := uint64(1); user <= fans; user++ {
		p := layout.PartitionOf(post, user)
		likes[p]++
		records[p] = append(records[p], liked(post, user))
	}
	dir := t.TempDir()
	l, stop := g.follow(dir)
	for _, p := range owners {
		wait(t, l, g.commit(p, 0, layout.UserBuckets(), false, append(records[p], counts(post, likes[p]))...))
	}
	got, err := l.Counts.PartitionsOf(post)
	require.NoError(t, err)
	require.Equal(t, owners, got)

	for _, asked := range [][]uint64{{post}, {1, post, post}} {
		have, asOf, err := l.Counts.Counts(asked)
		require.NoError(t, err)
		require.Equal(t, schema.Counts{Likes: fans}, have[len(have)-1])
		require.Len(t, asOf, partitions)
	}
	for _, size := range []int{1, 3, fans - 1, fans, 2 * fans} {
		all := pages(t, l, post, size)
		require.Len(t, all, fans)
		for i, liker := range all {
			require.EqualValues(t, i+1, liker.UserID, "in pages of %d", size)
		}
	}
	for user := uint64(1); user <= fans+1; user++ {
		reaction, asOf, err := reactionOf(l, post, user)
		require.NoError(t, err)
		require.Equal(t, user <= fans, reaction.Reaction == schema.Liked)
		require.Equal(t, layout.PartitionOf(post, user), asOf.Partition)
	}
	stop()
	l, _ = g.follow(dir)
	have, _, err := l.Counts.Counts([]uint64{post})
	require.NoError(t, err)
	require.Equal(t, schema.Counts{Likes: fans}, have[0], "after a restart, before any new record")
}

// TestCountsWhileTheLayoutChanges: at each step of a migration, reactions are found and streams read again.
func TestCountsWhileTheLayoutChanges(t *testing.T) {
	const post = 7
	g := &layoutLog{fold: newFold(t, 12, 0)}
	target, err := schema.NewLayout(partitions, "7:64")
	require.NoError(t, err)
	owner := schema.PartitionFor(post, partitions)
	user := uint64(1)
	for target.PartitionOf(post, user) == owner {
		user++
	}
	to := target.PartitionOf(post, user)

	l := newCopy(g.kafka, t.TempDir())
	recreated := make(chan wire.Position, 100)
	l.Counts.Watch(func(asOf wire.Position, changes []Change) {
		if changes == nil {
			recreated <- asOf
		}
	})
	start(t, l.Run)
	wait(t, l, g.commit(owner, 0, "", false, liked(post, user), counts(post, 1)))
	for range partitions { // counts of each partition became ready
		<-recreated
	}
	require.Empty(t, recreated)
	g.caughtUp(l) // so did reactions

	where := owner // partition of the reaction
	look := func(owners int) {
		t.Helper()
		have, asOf, err := l.Counts.Counts([]uint64{post})
		require.NoError(t, err)
		require.Equal(t, schema.Counts{Likes: 1}, have[0])
		require.Len(t, asOf, owners)
		reaction, at, err := reactionOf(l, post, user)
		require.NoError(t, err)
		require.Equal(t, schema.Liked, reaction.Reaction)
		page, _, _, err := likersOf(l, post, 0, 10)
		require.NoError(t, err)
		require.Len(t, page, 1)
		require.Equal(t, where, at.Partition)
	}
	look(1)
	settled := target.UserBuckets()
	for p := range int32(partitions) { // locked, one after another
		at := g.commit(p, 1, settled, true)
		wait(t, l, at)
		require.Equal(t, at, <-recreated)
		look(partitions)
	}
	wait(t, l, g.commit(to, 1, settled, true, liked(post, user), counts(post, 1)),
		g.commit(owner, 1, settled, true, &kgo.Record{Key: schema.AppendPairKey(nil, post, user)}, counts(post, 0)))
	require.Empty(t, recreated, "only a layout change is published to all")
	where = to
	look(partitions)
	for p := range int32(partitions) {
		at := g.commit(p, 1, settled, false)
		wait(t, l, at)
		require.Equal(t, at, <-recreated)
		look(partitions) // the post has that many buckets
	}
	got, err := l.Reactions.PartitionsOfUser(post, user)
	require.NoError(t, err)
	require.Equal(t, []int32{to}, got, "once settled, no other partition is searched")
}

// While a reader was away, posts moved, and compaction removed both what had moved away and the deletions of it.
func TestReaderThatMissedAMove(t *testing.T) {
	const post, user = 7, 1
	g := &layoutLog{fold: newFold(t, 12, 0)}
	target, err := schema.NewLayout(partitions, "7:64")
	require.NoError(t, err)
	from := schema.PartitionFor(post, partitions)
	to := (from + 1) % partitions
	dir := t.TempDir()
	l, stop := g.follow(dir)
	wait(t, l, g.commit(from, 0, "", false, liked(post, user), counts(post, 1)))
	stop()
	require.Equal(t, []int64{1, 0}, g.likesOf(t, dir, post, from, to))

	adm, gone := kadm.NewClient(g.cluster.Client()), kadm.Offsets{}
	for _, topic := range []string{schema.TopicState, schema.TopicCounts} {
		ends, err := adm.ListCommittedOffsets(t.Context(), topic)
		require.NoError(t, err)
		end, _ := ends.Lookup(topic, from)
		gone.AddOffset(topic, from, end.Offset, -1)
	}
	_, err = adm.DeleteRecords(t.Context(), gone)
	require.NoError(t, err)
	g.commit(to, 1, target.UserBuckets(), false, liked(post, user), counts(post, 1))
	for p := range int32(partitions) {
		g.commit(p, 1, target.UserBuckets(), false)
	}
	require.Equal(t, []int64{0, 1}, g.likesOf(t, dir, post, from, to))
}

// A new reader has nothing that could have moved away: it reads all layouts of the log, in several chunks.
func TestNewReaderOfSeveralLayouts(t *testing.T) {
	g := &layoutLog{fold: newFold(t, 12, 0)}
	for layouts, buckets := range []string{"", "7:64", "7:32"} {
		for p := range int32(partitions) {
			g.commit(p, uint32(layouts), schema.UserBuckets(buckets), false)
		}
	}
	g.cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		g.cluster.KeepControl()
		for _, topic := range req.(*kmsg.FetchRequest).Topics {
			for i := range topic.Partitions {
				topic.Partitions[i].PartitionMaxBytes = 1 // a batch at a time
			}
		}
		return nil, nil, false
	})
	l, stop := g.follow(t.TempDir())
	defer stop()
	require.Eventually(t, func() bool { return l.Ready() == nil }, patience, 5*time.Millisecond)
}

// likesOf returns the likes of a post that a reader with this directory has in two partitions.
func (g *layoutLog) likesOf(t *testing.T, dir string, post uint64, of ...int32) (likes []int64) {
	t.Helper()
	l, stop := g.follow(dir)
	defer stop()
	require.Eventually(t, func() bool { return l.Ready() == nil }, patience, 5*time.Millisecond)
	for _, p := range of {
		var c schema.Counts
		_, err := l.Counts.pin(p, func(s *store.Store, _ stream.Copy) error {
			_, err := s.Find(appendCountsKey(nil, post), func(b []byte) (err error) {
				c, err = decodeCounts(b)
				return err
			})
			return err
		}, nil)
		require.NoError(t, err)
		likes = append(likes, c.Likes)
		page, _, err := l.Reactions.Likers(p, post, 0, 10)
		require.NoError(t, err)
		require.Len(t, page.Likers, int(c.Likes))
	}
	return likes
}

// The newest layout holds. While a partition has not reported it, a reaction may be in any partition.
func TestPartitionsOfDifferentLayouts(t *testing.T) {
	var h owners
	of := func(post uint64) []int32 { return h.now(4).append(nil, post) }
	old := schema.Progress{Partitions: 4}
	settled := schema.Progress{Partitions: 4, UserBuckets: "7:64", Layouts: 1}
	h.tell(1, &settled)
	require.Equal(t, []int32{0, 1, 2, 3}, of(7), "its 64 buckets cover all partitions")
	require.Len(t, of(8), 1)
	h.tell(0, &old) // which was unavailable for long
	require.Len(t, of(8), 4)
	require.Len(t, h.now(4).appendOfUser(nil, 7, 1), 4)
	h.tell(0, &settled)
	require.Len(t, h.now(4).appendOfUser(nil, 7, 1), 1)
	require.Len(t, of(8), 1)
}

// A partition whose page ended early may have more users after it.
func TestPagesOfSeveralPartitions(t *testing.T) {
	of := func(users ...uint64) (likers []wire.Liker) {
		for _, user := range users {
			likers = append(likers, wire.Liker{UserID: user})
		}
		return likers
	}
	for _, tt := range []struct {
		pages []Page
		limit int
		want  []wire.Liker
		next  uint64
	}{
		{[]Page{{of(5), 100}, {of(7, 200), 0}}, 10, of(5, 7), 100},
		{[]Page{{of(5), 100}, {of(7, 90), 95}}, 10, of(5, 7, 90), 95},
		{[]Page{{of(5, 6), 6}, {of(1, 9), 0}}, 2, of(1, 5), 5},
		{[]Page{{of(), 3}, {of(4), 0}}, 2, of(), 3},
		{[]Page{{of(5), 0}, {of(), 0}}, 2, of(5), 0},
		{[]Page{{of(5), 0}, {of(1<<64 - 1), 0}}, 2, of(5, 1<<64-1), 0},
	} {
		page := MergePages(tt.pages, tt.limit)
		require.ElementsMatch(t, tt.want, page.Likers)
		require.Equal(t, tt.next, page.Next)
	}
}
