package view

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/reader/wire"
	"kudos/schema"
)

// Each answer is what the state table was after a transaction, and it says which: also
// while transactions are being read.
func TestEachAnswerIsAsOfItsPosition(t *testing.T) {
	t.Parallel()
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	f := newFold(t, kafka, 1)
	f.run(20)
	l, _ := newLikes(t, kafka, t.TempDir(), true)
	f.caughtUp(l)
	f.tear(kafka)
	var done atomic.Bool
	go func() {
		defer done.Store(true)
		f.run(150)
	}()
	for !done.Load() {
		f.requireSame(l)
	}
	f.caughtUp(l)
	f.requireSame(l)
	require.Equal(t, f.totals(), l.Totals())
}

func TestRestartWithAndWithoutTheLocalStore(t *testing.T) {
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	f := newFold(t, kafka, 2)
	dir := t.TempDir()
	for range 3 {
		f.run(15)
		l, stop := newLikes(t, kafka, dir, true)
		f.caughtUp(l)
		f.requireSame(l)
		require.Equal(t, f.totals(), l.Totals())
		stop()
		require.Error(t, l.Ready(), "a copy that has stopped answers nothing")
		f.run(15) // while it is away
	}
	require.NoError(t, os.RemoveAll(dir))
	l, _ := newLikes(t, kafka, dir, true)
	f.caughtUp(l)
	f.requireSame(l)
	require.Equal(t, f.totals(), l.Totals())
}

func TestWithoutReactions(t *testing.T) {
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	f := newFold(t, kafka, 3)
	f.run(20)
	dir := t.TempDir()
	others := []string{"mine", "counts", "counts-2024", "reactions-of-users"}
	for _, name := range others {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	l, stop := newLikes(t, kafka, dir, true)
	f.caughtUp(l)
	stop()

	l, stop = newLikes(t, kafka, dir, false)
	f.caughtUp(l)
	counts, at, err := l.Counts([]uint64{1})
	require.NoError(t, err)
	require.Equal(t, f.snapshot(at[0]).counts[1], counts[0])
	_, _, err = l.Reaction(1, 1)
	require.ErrorIs(t, err, ErrNoReactions)
	_, _, _, err = l.Likers(1, 0, 10)
	require.ErrorIs(t, err, ErrNoReactions)
	stop()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1+len(others), "the copy with reactions is deleted, and nothing else")

	l, _ = newLikes(t, kafka, dir, true)
	f.caughtUp(l)
	f.requireSame(l)
}

func TestLikersInPages(t *testing.T) {
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	f := newFold(t, kafka, 4)
	f.run(60)
	l, _ := newLikes(t, kafka, t.TempDir(), true)
	f.caughtUp(l)
	for post := uint64(1); post <= posts; post++ {
		whole, _, _, err := l.Likers(post, 0, users)
		require.NoError(t, err)
		for _, size := range []int{1, 2, 7} {
			var paged []Liker
			for after, more := uint64(0), true; more; {
				page, next, _, err := l.Likers(post, after, size)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page), size)
				paged, after, more = append(paged, page...), next, next != 0
			}
			require.Equal(t, whole, paged, "post %d in pages of %d", post, size)
		}
	}
}

// A page ends also where nearly all have another reaction.
func TestPageOfLikersIsBounded(t *testing.T) {
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	f := newFold(t, kafka, 5)
	p := schema.PartitionFor(7, partitions)
	var records []*kgo.Record
	const all = 3*scanFactor + 1
	for user := uint64(1); user <= all; user++ {
		pair := schema.Pair{Reaction: schema.Disliked}
		if user == all {
			pair.Reaction = schema.Liked
		}
		records = append(records, &kgo.Record{Key: schema.AppendPairKey(nil, 7, user), Value: schema.AppendPair(nil, &pair), Partition: p})
	}
	progress := schema.Progress{NextOffset: all, SourceID: f.id, Partitions: partitions}
	records = append(records, &kgo.Record{Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, &progress), Partition: p})
	f.commit(p, records)
	l, _ := newLikes(t, kafka, t.TempDir(), true)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, l.Wait(ctx, wire.Position{Partition: p, Offset: all}))

	page, next, _, err := l.Likers(7, 0, 1)
	require.NoError(t, err)
	require.Empty(t, page)
	require.EqualValues(t, scanFactor, next)
	page, next, _, err = l.Likers(7, 3*scanFactor, 1)
	require.NoError(t, err)
	require.Zero(t, next)
	require.Equal(t, []Liker{{UserID: all}}, page)
}

// A rebuild of the state table takes away what the events do not have.
func TestTombstones(t *testing.T) {
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	f := newFold(t, kafka, 11)
	f.run(30)
	l, _ := newLikes(t, kafka, t.TempDir(), true)
	f.caughtUp(l)
	for p := range int32(partitions) {
		state := cloneSnapshot(f.snapshot(f.end(p)))
		post := postsOf(p)[0]
		records := []*kgo.Record{{Key: schema.AppendCountsKey(nil, post), Partition: p}}
		for user := range state.pairs[post] {
			records = append(records, &kgo.Record{Key: schema.AppendPairKey(nil, post, user), Partition: p})
		}
		delete(state.counts, post)
		delete(state.pairs, post)
		next := f.end(p).Offset + 1
		progress := schema.Progress{NextOffset: next, SourceID: f.id, Partitions: partitions}
		records = append(records, &kgo.Record{Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, &progress), Partition: p})
		f.mu.Lock()
		f.mu.after[p][next], f.mu.last[p] = state, next
		f.mu.Unlock()
		f.commit(p, records)
	}
	f.caughtUp(l)
	f.requireSame(l)
	require.Equal(t, f.totals(), l.Totals())
}

// Of a topic that was deleted and made anew nothing of before is answered.
func TestAnotherStateTable(t *testing.T) {
	t.Parallel()
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	f := newFold(t, kafka, 6)
	f.run(30)
	l, _ := newLikes(t, kafka, t.TempDir(), true)
	f.caughtUp(l)
	cl, err := kafka.NewClient(discardLog())
	require.NoError(t, err)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	_, err = adm.DeleteTopic(t.Context(), schema.TopicState)
	require.NoError(t, err)
	_, err = adm.CreateTopic(t.Context(), partitions, 1, nil, schema.TopicState)
	require.NoError(t, err)
	again := newFold(t, kafka, 7)
	again.run(10)
	require.Eventually(t, func() bool {
		_, asOf, err := l.Counts([]uint64{1, 2, 3, 4, 5, 6, 7, 8, 9})
		if err != nil {
			return false
		}
		for _, at := range asOf {
			if at != again.end(at.Partition) {
				return false
			}
		}
		return true
	}, patience, 20*time.Millisecond)
	again.requireSame(l)
	require.Equal(t, again.totals(), l.Totals())
}

// What changes is told after it can be read, in order, and nothing else is.
func TestWatch(t *testing.T) {
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	f := newFold(t, kafka, 8)
	f.run(10)
	l := NewLikes(Options{StateDir: t.TempDir(), CacheBytes: 8 << 20}, kafka, discardLog())
	type news struct {
		asOf    wire.Position
		changes []Change
	}
	told := make(chan news, 1000)
	l.Watch(func(asOf wire.Position, changes []Change) {
		_, have, err := l.Counts([]uint64{postsOf(asOf.Partition)[0]})
		if err != nil || have[0].Offset < asOf.Offset {
			t.Errorf("told of %s, while %v (%v) can be read", asOf, have, err)
		}
		told <- news{asOf, append([]Change(nil), changes...)}
	})
	stop := start(t, l.Run)
	f.caughtUp(l)
	begun := [partitions]int64{}
	for p := range int32(partitions) {
		begun[p] = f.end(p).Offset
	}
	f.tear(kafka)
	f.run(60)
	f.caughtUp(l)
	stop()
	close(told)

	seen := map[int32]snapshot{}
	for n := range told {
		p := n.asOf.Partition
		if n.changes == nil {
			seen[p] = cloneSnapshot(f.snapshot(n.asOf))
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
	l, _ := newLikes(t, kafka, t.TempDir(), true)
	var err error
	require.Eventually(t, func() bool {
		_, _, err = l.Counts([]uint64{1})
		var notReady *NotReadyError
		require.ErrorAs(t, err, &notReady)
		return notReady.Remedy != ""
	}, patience, 10*time.Millisecond)
	require.ErrorContains(t, err, "there is no topic latest-like-action-table")
	require.ErrorContains(t, err, "remedy: kudos topics apply")
	require.Error(t, l.Ready())
}

func TestWaitIsBounded(t *testing.T) {
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	f := newFold(t, kafka, 9)
	l, _ := newLikes(t, kafka, t.TempDir(), true)
	f.caughtUp(l)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.Wait(ctx, wire.Position{Offset: 1 << 40}), context.Canceled)
	// Of a partition that is not there, too: it may be one that is being added.
	require.ErrorIs(t, l.Wait(ctx, wire.Position{Partition: 99}), context.Canceled)
	_, err := l.AsOf(99)
	require.ErrorContains(t, err, "there is no copy of this partition yet")
}

// The lag counts events of likes that the fold has not brought to the state table.
func TestLag(t *testing.T) {
	t.Parallel()
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	f := newFold(t, kafka, 10)
	l, _ := newLikes(t, kafka, t.TempDir(), true)
	lag := func(want int64) func() bool {
		return func() bool {
			events, _, known := l.Lag()
			return known && events == want
		}
	}
	require.Eventually(t, lag(0), patience, 10*time.Millisecond)
	cl, err := kafka.NewClient(discardLog(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(schema.TopicLikes))
	require.NoError(t, err)
	defer cl.Close()
	for range 3 {
		require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Partition: 1, Value: []byte("{}")}).FirstErr())
	}
	require.Eventually(t, lag(3), patience, 10*time.Millisecond)
	_, behind, _ := l.Lag()
	require.Positive(t, behind)
	f.transaction(1, 2)
	require.Eventually(t, lag(1), patience, 10*time.Millisecond)
	f.transaction(1, 1)
	require.Eventually(t, lag(0), patience, 10*time.Millisecond)
}
