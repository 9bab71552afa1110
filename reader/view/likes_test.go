package view

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream/store"
)

// Each read returns the state table as of a transaction, and its position, also while transactions are being applied.
func TestEachAnswerIsAsOfItsPosition(t *testing.T) {
	t.Parallel()
	f := newFold(t, 1, 20)
	l, _ := f.follow(t.TempDir())
	f.tear()
	var done atomic.Bool
	go func() { defer done.Store(true); f.run(150) }()
	for !done.Load() {
		f.requireSame(l)
	}
	f.requireAll(l)
}

func TestRestartWithAndWithoutTheLocalStore(t *testing.T) {
	f := newFold(t, 2, 0)
	dir := t.TempDir()
	for range 3 {
		f.run(15)
		l, stop := f.follow(dir)
		f.requireAll(l)
		stop()
		require.Error(t, l.Ready(), "a stopped view is not ready")
		f.run(15) // while the view is stopped
	}
	require.NoError(t, os.RemoveAll(dir))
	l, _ := f.follow(dir)
	f.requireAll(l)
}

func TestWithoutReactions(t *testing.T) {
	f := newFold(t, 3, 20)
	dir := t.TempDir()
	others := []string{"mine", "counts", "counts-2024", "reactions-of-users"}
	for _, name := range others {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	_, stop := f.follow(dir)
	stop()

	l := NewLikes(Options{StateDir: dir, CacheBytes: 8 << 20}, f.kafka, testkit.Log())
	stop = start(t, l.Run)
	f.caughtUp(l)
	counts, at, err := l.Counts.Counts([]uint64{1})
	require.NoError(t, err)
	require.Equal(t, f.snapshot(at[0]).counts[1], counts[0])
	require.Nil(t, l.Reactions)
	stop()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1+len(others), "only the view with reactions is deleted")

	l, _ = f.follow(dir)
	f.requireAll(l)
}

func TestLikersInPages(t *testing.T) {
	l, _ := newFold(t, 4, 60).follow(t.TempDir())
	for post := uint64(1); post <= posts; post++ {
		whole, _, _, err := likersOf(l, post, 0, users)
		require.NoError(t, err)
		for _, size := range []int{1, 2, 7} {
			require.Equal(t, whole, pages(t, l, post, size), "post %d in pages of %d", post, size)
		}
	}
}

func pages(t *testing.T, l *Likes, post uint64, size int) (all []wire.Liker) {
	t.Helper()
	for after, more := uint64(0), true; more; {
		page, next, _, err := likersOf(l, post, after, size)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), size)
		all, after, more = append(all, page...), next, next != 0
	}
	return all
}

// A page is bounded even if nearly all users have another reaction.
func TestPageOfLikersIsBounded(t *testing.T) {
	f := newFold(t, 5, 0)
	var records []*kgo.Record
	const all = 3*scanFactor + 1
	for user := uint64(1); user <= all; user++ {
		pair := schema.Pair{Reaction: schema.Disliked}
		if user == all {
			pair.Reaction = schema.Liked
		}
		records = append(records, &kgo.Record{Key: schema.AppendPairKey(nil, 7, user),
			Value: schema.AppendPair(nil, &pair)})
	}
	l := newLikes(t, f.kafka)
	wait(t, l, f.commit(schema.PartitionFor(7, partitions), schema.Progress{NextOffset: all}, records...))

	page, next, _, err := likersOf(l, 7, 0, 1)
	require.NoError(t, err)
	require.Empty(t, page)
	require.EqualValues(t, scanFactor, next)
	page, next, _, err = likersOf(l, 7, 3*scanFactor, 1)
	require.NoError(t, err)
	require.Zero(t, next)
	require.Equal(t, []wire.Liker{{UserID: all, Region: schema.Region{}.String()}}, page)
}

// A rebuild of the state table deletes what the events do not have.
func TestTombstones(t *testing.T) {
	f := newFold(t, 11, 30)
	l, _ := f.follow(t.TempDir())
	for p := range int32(partitions) {
		state := f.snapshot(f.end(p)).clone()
		post := postsOf(p)[0]
		records := []*kgo.Record{{Key: schema.AppendCountsKey(nil, post)}}
		for user := range state.pairs[post] {
			records = append(records, &kgo.Record{Key: schema.AppendPairKey(nil, post, user)})
		}
		delete(state.counts, post)
		delete(state.pairs, post)
		f.commitAs(p, f.end(p).Offset+1, state, records)
	}
	f.requireAll(l)
}

// After a topic was deleted and recreated, nothing from before is returned.
func TestAnotherStateTable(t *testing.T) {
	t.Parallel()
	f := newFold(t, 6, 30)
	l, _ := f.follow(t.TempDir())
	f.requireSame(l) // caches the counts
	f.recreate(schema.TopicState)
	f.recreate(schema.TopicCounts)
	again := newFoldOn(t, f.cluster, f.kafka, 7, 10)
	require.Eventually(t, func() bool {
		_, asOf, err := l.Counts.Counts([]uint64{1, 2, 3, 4, 5, 6, 7, 8, 9})
		behind := func(at wire.Position) bool { return at != again.end(at.Partition) }
		return err == nil && !slices.ContainsFunc(asOf, behind)
	}, patience, 20*time.Millisecond)
	again.requireAll(l)
}

// Changes are reported once they can be read, in order, and nothing else is reported.
func TestWatch(t *testing.T) {
	f := newFold(t, 8, 10)
	l := NewLikes(Options{StateDir: t.TempDir(), CacheBytes: 8 << 20}, f.kafka, testkit.Log())
	type news struct {
		asOf    wire.Position
		changes []Change
	}
	told := make(chan news, 1000)
	l.Counts.Watch(func(asOf wire.Position, changes []Change) {
		_, have, err := l.Counts.Counts([]uint64{postsOf(asOf.Partition)[0]})
		if err != nil || have[0].Offset < asOf.Offset {
			t.Errorf("notified of %s, but %v (%v) can be read", asOf, have, err)
		}
		told <- news{asOf, append([]Change(nil), changes...)}
	})
	stop := start(t, l.Run)
	f.caughtUp(l)
	begun := [partitions]int64{}
	for p := range int32(partitions) {
		begun[p] = f.end(p).Offset
	}
	f.tear()
	f.run(60)
	f.caughtUp(l)
	stop()
	close(told)

	seen := map[int32]snapshot{}
	for n := range told {
		p := n.asOf.Partition
		if n.changes == nil {
			seen[p] = f.snapshot(n.asOf).clone()
			continue
		}
		require.Greater(t, n.asOf.Offset, begun[p])
		for _, c := range n.changes {
			require.NotEqual(t, seen[p].counts[c.PostID], c.Counts, "post %d has not changed", c.PostID)
			seen[p].counts[c.PostID] = c.Counts
		}
		for post, want := range f.snapshot(n.asOf).counts {
			require.Equal(t, want, seen[p].counts[post], "post %d as of %s", post, n.asOf)
		}
	}
	for p := range int32(partitions) {
		for post, want := range f.snapshot(f.end(p)).counts {
			require.Equal(t, want, seen[p].counts[post], "post %d at the end", post)
		}
	}
}

func TestNotReadyWithoutTheTopic(t *testing.T) {
	_, kafka := broker(t, "another")
	l := newLikes(t, kafka)
	var err error
	require.Eventually(t, func() bool {
		_, _, err = l.Counts.Counts([]uint64{1})
		var notReady *NotReadyError
		require.ErrorAs(t, err, &notReady)
		return notReady.Action != ""
	}, patience, 10*time.Millisecond)
	require.ErrorContains(t, err, "there is no topic like-counts")
	require.ErrorContains(t, err, "action: kudos topics apply")
	require.ErrorContains(t, l.Ready(), "like-counts")
	require.ErrorContains(t, l.Ready(), "latest-like-action-table")
}

// A partition that the fold never began is not ready: its position would be unknown.
func TestNotReadyWithoutAProgressRecord(t *testing.T) {
	cluster, kafka := broker(t, schema.TopicState, schema.TopicCounts, schema.TopicLikes)
	l := newLikes(t, kafka)
	for lane, want := range map[*Lane]string{
		l.Counts.Lane: "like-counts/1: it has no progress record (action: kudos topics apply, and run a processor, " +
			"which completes it)",
		l.Reactions.Lane: "latest-like-action-table/1: it has no progress record (action: kudos topics apply)",
	} {
		require.Eventually(t, func() bool { return lane.view.Ready() == nil }, patience, 5*time.Millisecond)
		_, err := lane.AsOf(1)
		require.ErrorAs(t, err, new(*NotReadyError))
		require.EqualError(t, err, want)
		_, err = lane.Epoch(1)
		require.EqualError(t, err, want)
		require.ErrorContains(t, l.Ready(), want)
	}
	_, _, err := l.Counts.Counts([]uint64{postsOf(1)[0]})
	require.ErrorContains(t, err, "like-counts/1")
	_, _, _, err = likersOf(l, postsOf(1)[0], 0, 1)
	require.ErrorContains(t, err, "like-counts: the partition layout is not known yet")

	f := newFoldOn(t, cluster, kafka, 30, 0) // begins all partitions
	f.caughtUp(l)
	require.NoError(t, l.Ready())
	require.Zero(t, l.Counts.Totals())
}

// Counts that are incomplete are not read: without its progress record, like-counts lacks some.
func TestIncompleteCounts(t *testing.T) {
	f := newFold(t, 13, 30)
	l := newCopy(f.kafka, t.TempDir())
	unknown := make(chan wire.Position, 100)
	l.Counts.Watch(func(asOf wire.Position, changes []Change) {
		if changes == nil && asOf.Partition == 1 {
			unknown <- asOf
		}
	})
	start(t, l.Run)
	f.caughtUp(l)
	require.Equal(t, f.end(1), <-unknown)

	f.cluster.Produce(&kgo.Record{Topic: schema.TopicCounts, Partition: 1, Key: []byte(schema.StateProgressKey)})
	require.Eventually(t, func() bool { _, err := l.Counts.AsOf(1); return err != nil }, patience, 5*time.Millisecond)
	require.ErrorContains(t, l.Ready(), "like-counts/1: it has no progress record")
	_, err := l.Reactions.AsOf(1)
	require.NoError(t, err)
	_, err = l.Counts.AsOf(0)
	require.NoError(t, err)
	f.transaction(1, 20)
	f.requireAll(l)
	require.Equal(t, f.end(1), <-unknown, "anything may have changed meanwhile")
}

// A record that cannot be decoded stops its partition, and no other. The partition is then not read, which would return
// an old state forever, and readiness names the record. Once that is gone, the partition resumes.
func TestUndecodableUpdateParksItsPartition(t *testing.T) {
	f := newFold(t, 12, 30)
	dir := t.TempDir()
	l, stop := f.follow(dir)
	require.NoError(t, l.Ready())

	f.commit(0, schema.Progress{NextOffset: f.end(0).Offset + 1},
		&kgo.Record{Key: schema.AppendCountsKey(nil, postsOf(0)[0]), Value: []byte{99}}) // from a later version
	stopped := func() bool {
		_, err := l.Counts.AsOf(0)
		return err != nil && strings.Contains(err.Error(), "record at offset ") &&
			strings.Contains(err.Error(), "version 99")
	}
	require.Eventually(t, stopped, patience, 5*time.Millisecond, "a running view")
	require.ErrorAs(t, l.Ready(), new(*NotReadyError))
	_, err := l.Counts.AsOf(1)
	require.NoError(t, err, "the others continue")
	_, err = l.Reactions.AsOf(0)
	require.NoError(t, err, "and the other lane")
	stop()

	l = newCopy(f.kafka, dir)
	start(t, l.Run)
	require.Eventually(t, stopped, patience, 5*time.Millisecond, "a starting view")

	adm := kadm.NewClient(f.cluster.Client())
	ends, err := adm.ListCommittedOffsets(t.Context(), schema.TopicCounts)
	require.NoError(t, err)
	end, _ := ends.Lookup(schema.TopicCounts, 0)
	var gone kadm.Offsets
	gone.AddOffset(schema.TopicCounts, 0, end.Offset, -1)
	_, err = adm.DeleteRecords(t.Context(), gone)
	require.NoError(t, err)
	f.transaction(0, 20)
	f.caughtUp(l)
	require.NoError(t, l.Ready())
}

func TestWaitIsBounded(t *testing.T) {
	l, _ := newFold(t, 9, 0).follow(t.TempDir())
	ctx := testkit.Canceled()
	require.ErrorIs(t, l.Counts.Wait(ctx, wire.Position{Offset: 1 << 40}), context.Canceled)
	// Also for a partition that does not exist: it may be one that is being added.
	require.ErrorIs(t, l.Counts.Wait(ctx, wire.Position{Partition: 99}), context.Canceled)
	_, err := l.Counts.AsOf(99)
	require.ErrorContains(t, err, "the view does not include this partition")
}

// A failed Apply leaves no trace, neither in the position nor in the totals.
func TestFailedApplyLeavesNoTrace(t *testing.T) {
	stores := store.NewSet(t.TempDir(), 1<<20, testkit.Log())
	t.Cleanup(stores.Close)
	store := stores.New(schema.TopicCounts, 0)
	require.NoError(t, store.Open())
	t.Cleanup(func() { require.NoError(t, store.Close()) })

	c := &countsCopy{laneCopy: newLaneCopy(&Lane{}, 0), counts: &Counts{recent: newRecentCounts(1 << 20)}}
	require.NoError(t, c.Open(store))
	apply := func(records ...*kgo.Record) error {
		w := store.NewWrite()
		if err := c.Apply(store, w, records); err != nil {
			w.Discard()
			return err
		}
		require.NoError(t, w.Commit(0))
		c.Applied()
		return nil
	}
	progress := func(next int64) *kgo.Record {
		p := schema.Progress{NextOffset: next, Partitions: 1}
		return &kgo.Record{Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, &p)}
	}
	require.NoError(t, apply(counts(1, 5), progress(10)))
	unknown := counts(2, 1)
	unknown.Value[0] = 99
	require.ErrorContains(t, apply(counts(1, 6), progress(20), unknown, progress(30)), "version")
	// On a retry the records may come in other pieces: the first has no progress record.
	require.NoError(t, apply())
	state, _, err := c.present()
	require.NoError(t, err)
	require.EqualValues(t, 10, state.progress.NextOffset, "no later record is in the store")
	require.NoError(t, apply(counts(1, 6), progress(20)))
	state, _, err = c.present()
	require.NoError(t, err)
	require.EqualValues(t, 20, state.progress.NextOffset)
	require.Equal(t, Totals{Posts: 1, Likes: 6}, c.totals)
}

// TestLikersWithoutVoidedUsers: lists agree with counts; users see their own reactions as before.
func TestLikersWithoutVoidedUsers(t *testing.T) {
	f := newFold(t, 5, 0)
	var records []*kgo.Record
	for user := uint64(1); user <= 3; user++ {
		pair := schema.Pair{Reaction: schema.Liked, SinceMs: 5, TimeMs: 5, Void: user == 2}
		records = append(records, &kgo.Record{Key: schema.AppendPairKey(nil, 7, user),
			Value: schema.AppendPair(nil, &pair)})
	}
	l := newLikes(t, f.kafka)
	p := schema.PartitionFor(7, partitions)
	wait(t, l, f.commit(p, schema.Progress{NextOffset: 3}, records...))
	page, _, _, err := likersOf(l, 7, 0, 10)
	require.NoError(t, err)
	require.Equal(t, []uint64{1, 3}, []uint64{page[0].UserID, page[1].UserID})
	require.Len(t, page, 2)
	list, _, err := l.Reactions.Of(p, 2, []uint64{7})
	require.NoError(t, err)
	require.Equal(t, Reaction{Reaction: schema.Liked, SinceMs: 5, Void: true}, list[0])
}
