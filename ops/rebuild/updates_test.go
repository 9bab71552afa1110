package rebuild

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/audit"
	"kudos/schema"
	"kudos/stream/kafka"
)

// updates returns all of like-updates in the damaged partition, without progress.
func (w *world) updates() (all []schema.Update) {
	w.t.Helper()
	err := kafka.ReadLog(w.t.Context(), w.cl, schema.TopicUpdates, damaged, 0, func(c kafka.LogChunk) (bool, error) {
		for _, rec := range c.Records {
			var u schema.Update
			require.NoError(w.t, schema.DecodeUpdate(rec.Value, &u))
			if string(rec.Key) != schema.ProgressKey {
				all = append(all, u)
			}
		}
		return c.Next < c.End, nil
	})
	require.NoError(w.t, err)
	return all
}

// react has the state table hold a user's reaction of a minute.
func (w *world) react(post, user uint64, reaction schema.Reaction, minute int64) {
	w.t.Helper()
	at := time.Unix(minute*60, 0).UnixMilli()
	pair := schema.Pair{Reaction: reaction, TimeMs: at, SinceMs: at, Region: schema.Region{'U', 'S'}}
	w.write(schema.TopicState, damaged, &kgo.Record{Key: schema.AppendPairKey(nil, post, user), Value: schema.AppendPair(nil, &pair)})
}

// TestUpdatesAreMadeFromThePairs: each cell has what the pairs in it come to, and a record of the
// counts that is another is set right with them.
func TestUpdatesAreMadeFromThePairs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stored schema.Counts
		said   string
		counts int // records of counts that were written
	}{
		"as stored":    {schema.Counts{Likes: 3, Dislikes: 2}, "partition 1: 3 updates and 1 state records written", 0},
		"stored wrong": {schema.Counts{Likes: 9}, "partition 1: 3 updates and 2 state records written", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for user, minute := range []int64{100, 100, 101} {
				w.react(thePost, uint64(user+1), schema.Liked, minute)
			}
			w.react(thePost, 7, schema.Disliked, 100)
			w.react(thePost, 8, schema.Disliked, 100)
			w.react(thePost, 9, schema.NoReaction, 100)
			other := postAfter(thePost)
			w.react(other, 1, schema.Liked, 99)
			w.write(schema.TopicState, damaged, &kgo.Record{Key: schema.AppendCountsKey(nil, thePost), Value: schema.AppendCounts(nil, c.stored)},
				&kgo.Record{Key: schema.AppendCountsKey(nil, other), Value: schema.AppendCounts(nil, schema.Counts{Likes: 1})})
			_, err := w.run(Updates)
			require.ErrorContains(t, err, "127.0.0.1:1", "MySQL, after all of Kafka was done")
			us := schema.Region{'U', 'S'}
			require.Equal(t, []schema.Update{{
				Counts: schema.Counts{Likes: 3, Dislikes: 2},
				Deltas: []schema.Delta{{Region: us, Minute: 100, Likes: 2, Dislikes: 2}, {Region: us, Minute: 101, Likes: 1}},
			}, {
				Seq:    1,
				Counts: schema.Counts{Likes: 1},
				Deltas: []schema.Delta{{Region: us, Minute: 99, Likes: 1}},
			}}, w.updates())
			require.Contains(t, w.said, c.said)
			mended := "partition 1: the state table's counts of 1 posts were not those of their pairs; set right"
			if c.counts > 0 {
				require.Contains(t, w.said, mended)
			} else {
				require.NotContains(t, w.said, mended)
			}
			require.Contains(t, w.out.String(), "rebuild: writing the updates of partition 1: 2 updates")
			require.Equal(t, uint64(3), w.progress().NextSeq)
		})
	}
}

// eachDifference is what turns one table into another.
func TestEachDifference(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.rebuild(Events)
	counts := func(post uint64) string { return string(schema.AppendCountsKey(nil, post)) }
	tables := []map[string]string{
		{counts(1): "old alone", counts(3): "same", counts(4): "other", counts(9): "old alone, last"},
		{counts(2): "fresh alone", counts(3): "same", counts(4): "another", counts(5): "fresh alone"},
	}
	var made [2]*audit.Table
	for i, rows := range tables {
		table, err := b.newTable(t.TempDir(), damaged)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, table.Close()) })
		write := table.NewWrite()
		for key, value := range rows {
			require.NoError(t, write.Set([]byte(key), []byte(value)))
		}
		require.NoError(t, write.Commit(0))
		made[i] = table
	}
	type change struct{ key, value string }
	var changes []change
	require.NoError(t, eachDifference(made[0], made[1], func(key, value []byte) error {
		if value == nil {
			value = []byte("deleted")
		}
		changes = append(changes, change{string(key), string(value)})
		return nil
	}))
	require.Equal(t, []change{
		{counts(1), "deleted"}, {counts(2), "fresh alone"}, {counts(4), "another"}, {counts(5), "fresh alone"}, {counts(9), "deleted"},
	}, changes)
}

// TestNothingFoldedHasNoEpoch: there is no record whose epoch it could be.
func TestNothingFoldedHasNoEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.rebuild(Events)
	table, err := b.newTable(t.TempDir(), damaged)
	require.NoError(t, err)
	defer func() { require.NoError(t, table.Close()) }()
	epoch, err := b.replay(t.Context(), job{partition: damaged}, table)
	require.NoError(t, err)
	require.Equal(t, int32(-1), epoch)
}

// TestOffsetsOfAllPartitionsAreCommittedAgain, not only that of the first one.
func TestOffsetsOfAllPartitionsAreCommittedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for p := range int32(partitions) {
		w.in = p
		for range 4 {
			w.write(schema.TopicLikes, p, &kgo.Record{Value: []byte("an event")})
		}
		w.setProgress(func(p *schema.Progress) { p.NextOffset, p.NextSeq = 3, 1 })
		w.publish(0, 3)
		w.commit(1)
	}
	_, err := w.run(Offsets)
	require.NoError(t, err)
	for p := range int32(partitions) {
		w.in = p
		require.Equal(t, int64(3), w.committed(), "partition %d", p)
	}
}

// TestUpdatesOfAPostWithManyCells: a record has so many deltas at most, and none is left out.
func TestUpdatesOfAPostWithManyCells(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const cells = schema.MaxDeltas + 1
	var pairs []*kgo.Record
	for minute := range int64(cells) {
		at := time.Unix(minute*60, 0).UnixMilli()
		pair := schema.Pair{Reaction: schema.Liked, TimeMs: at, SinceMs: at, Region: schema.Region{'U', 'S'}}
		pairs = append(pairs, &kgo.Record{Key: schema.AppendPairKey(nil, thePost, uint64(minute)+1), Value: schema.AppendPair(nil, &pair)})
	}
	w.write(schema.TopicState, damaged, pairs...)
	w.write(schema.TopicState, damaged, &kgo.Record{Key: schema.AppendCountsKey(nil, thePost), Value: schema.AppendCounts(nil, schema.Counts{Likes: cells})})
	_, err := w.run(Updates)
	require.ErrorContains(t, err, "127.0.0.1:1", "MySQL, after all of Kafka was done")
	updates := w.updates()
	require.Len(t, updates, 2)
	require.Len(t, updates[0].Deltas, schema.MaxDeltas)
	require.Equal(t, []schema.Delta{{Region: schema.Region{'U', 'S'}, Minute: cells - 1, Likes: 1}}, updates[1].Deltas)
}
