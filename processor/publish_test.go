package processor

import (
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold"
	"kudos/processor/fold/foldtest"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// newTestFold returns a worker that has nothing but its progress.
func newTestFold(partition int32) *foldWorker {
	workers := NewWorkers(DefaultOptions(), nil, &store.Set{}, nil, slog.New(slog.DiscardHandler), nil)
	return &foldWorker{Workers: workers, partition: partition, progress: testProgress(), layout: foldtest.Layout}
}

// publishBatch does what Process does before the commit.
func publishBatch(t testing.TB, w *foldWorker, state fold.State, next kafka.Position, records ...*kgo.Record) *output {
	w.layout = w.progress.Layout()
	w.classified[0].Reset()
	for _, rec := range records {
		w.classified[0].Add(rec, w.layout)
	}
	result, err := w.fold.Fold(w.classified[0].Events, state)
	require.NoError(t, err)
	out := &output{partition: w.partition, progress: w.progress, next: next}
	w.publish(out, &w.classified[0], result, true)
	return out
}

func testProgress() schema.Progress {
	return schema.Progress{NextOffset: 100, LeaderEpoch: 3, NextSeq: 7, ClusterID: "cluster",
		Partitions: foldtest.Partitions, SourceID: schema.TopicID{1}, StateID: schema.TopicID{2},
		UpdatesID: schema.TopicID{3}}
}

func spell(t testing.TB, rec *kgo.Record) string {
	where := fmt.Sprintf("%s/%d ", rec.Topic, rec.Partition)
	switch rec.Topic {
	case schema.TopicState, schema.TopicCounts:
		if post, user, ok := schema.ParsePairKey(rec.Key); ok {
			var p schema.Pair
			require.NoError(t, schema.DecodePair(rec.Value, &p))
			return fmt.Sprintf("%spost %d user %d: reaction %d time %d offset %d since %d in %s", where, post, user,
				p.Reaction, p.TimeMs, p.Offset, p.SinceMs, p.Region)
		}
		if post, ok := schema.ParseCountsKey(rec.Key); ok {
			c, err := schema.DecodeCounts(rec.Value)
			require.NoError(t, err)
			return fmt.Sprintf("%spost %d: %d likes %d dislikes", where, post, c.Likes, c.Dislikes)
		}
		require.Equal(t, schema.StateProgressKey, string(rec.Key))
		var p schema.Progress
		require.NoError(t, schema.DecodeProgress(rec.Value, &p))
		return fmt.Sprintf("%sprogress: offset %d epoch %d seq %d of %s, %d partitions, topics %x %x %x", where,
			p.NextOffset, p.LeaderEpoch, p.NextSeq, p.ClusterID, p.Partitions,
			p.SourceID[:1], p.StateID[:1], p.UpdatesID[:1])
	case schema.TopicUpdates:
		var u schema.Update
		require.NoError(t, schema.DecodeUpdate(rec.Value, &u))
		text := fmt.Sprintf("%s%s: seq %d, %d likes %d dislikes, up to %d", where, rec.Key, u.Seq, u.Counts.Likes,
			u.Counts.Dislikes, u.SourceOffset)
		for _, d := range u.Deltas {
			text += fmt.Sprintf(" | %s minute %d %+d %+d", d.Region, d.Minute, d.Likes, d.Dislikes)
		}
		return text
	}
	headers := ""
	for _, h := range rec.Headers {
		headers += fmt.Sprintf(" %s=%s", h.Key, h.Value)
	}
	return fmt.Sprintf("%s%s = %s%s", where, rec.Key, hex.EncodeToString(rec.Value), headers)
}

// This is the wire format: changing it changes a contract.
func TestOutputOfABatch(t *testing.T) {
	owner, other, away := foldtest.PostAt(2, 0), foldtest.PostAt(2, 1), foldtest.PostAt(3, 0)
	require.Less(t, owner, other)
	region := schema.Region{'D', 'E'}
	state := &foldtest.State{
		Pair: map[fold.PairKey]schema.Pair{{PostID: owner, UserID: 5}: {Reaction: schema.Liked, TimeMs: 60_000,
			Offset: 20, SinceMs: 60_000, Region: region}},
		Count: map[uint64]schema.Counts{owner: {Likes: 10, Dislikes: 1}},
	}
	w := newTestFold(2)
	value := func(user uint64, action string, timeMs int64) string {
		return fmt.Sprintf(`{"user_id":%d,"action":%q,"time_ms":%d,"region":"US"}`, user, action, timeMs)
	}
	key := func(post uint64) string { return fmt.Sprint(post) }
	out := publishBatch(t, w, state, kafka.Position{Offset: 111, Epoch: 4},
		foldtest.Record(2, 100, key(other), value(9, "DISLIKE", 180_000)),
		foldtest.Record(2, 101, key(owner), value(5, "UNLIKE", 120_000)),
		foldtest.Record(2, 103, key(away), value(1, "LIKE", 7)),
		foldtest.Record(2, 104, "k", "v", kgo.RecordHeader{Key: "h", Value: []byte("1")}),
		foldtest.Record(2, 105, key(other), value(8, "LIKE", 180_001)),
		foldtest.Record(2, 106, key(other), value(8, "UNLIKE", 180_002)),
		foldtest.Record(2, 110, key(owner), value(6, "LIKE", 240_000)))
	posts := strings.NewReplacer("HOME", key(owner), "OTHER", key(other), "AWAY", key(away),
		"HEX", fmt.Sprintf("%02x", away), "CAUSE", string(w.classified[0].DeadLetters[0].Headers[1].Value))
	want := posts.Replace(`
latest-like-action-table/2 post OTHER user 9: reaction 2 time 180000 offset 100 since 180000 in US
latest-like-action-table/2 post HOME user 5: reaction 0 time 120000 offset 101 since 120000 in US
latest-like-action-table/2 post OTHER user 8: reaction 0 time 180002 offset 106 since 180002 in US
latest-like-action-table/2 post HOME user 6: reaction 1 time 240000 offset 110 since 240000 in US
latest-like-action-table/2 post OTHER: 0 likes 1 dislikes
latest-like-action-table/2 progress: offset 111 epoch 4 seq 10 of cluster, 4 partitions, topics 01 02 03
like-updates/2 OTHER: seq 7, 0 likes 1 dislikes, up to 111 | US minute 3 +0 +1
like-updates/2 HOME: seq 8, 10 likes 1 dislikes, up to 111 | DE minute 1 -1 +0 | US minute 4 +1 +0
like-updates/2 _: seq 9, 0 likes 0 dislikes, up to 111
like-counts/2 post OTHER: 0 likes 1 dislikes
like-counts/2 progress: offset 111 epoch 4 seq 10 of cluster, 4 partitions, topics 01 02 03
likes/3 AWAY = 08HEX1001180120072a025553 kudos.forwarded=2@103
likes.dlt/2 k = 76 h=1 kudos.error=CAUSE kudos.topic=likes kudos.partition=2 kudos.offset=104`)
	for i, line := range strings.Split(want, "\n")[1:] { // HOME's likes are as many as before: its counts stay
		require.Equal(t, line, spell(t, out.records[i]))
	}
	require.Len(t, out.records, 13)
	require.Equal(t, 6, out.state, "records for the local store")
	require.Equal(t, 3, out.updates)
	require.Equal(t, testProgress(), w.progress, "it advances only after the commit")
}

func TestABatchWithoutChangesPublishesProgressOnly(t *testing.T) {
	w := newTestFold(2)
	next := kafka.Position{Offset: 101, Epoch: 3}
	out := publishBatch(t, w, &foldtest.State{}, next, foldtest.Record(2, 100, "x", "y"))
	require.Equal(t, []string{
		"latest-like-action-table/2 progress: offset 101 epoch 3 seq 8 of cluster, 4 partitions, topics 01 02 03",
		"like-updates/2 _: seq 7, 0 likes 0 dislikes, up to 101",
		"like-counts/2 progress: offset 101 epoch 3 seq 8 of cluster, 4 partitions, topics 01 02 03",
	}, []string{spell(t, out.records[0]), spell(t, out.records[1]), spell(t, out.records[2])})
	require.Len(t, out.records, 4, "including the dead letter")
}

// The records point into one buffer, which grows meanwhile.
func TestLargeBatchDoesNotMixRecords(t *testing.T) {
	const users = 20_000
	w := newTestFold(2)
	var records []*kgo.Record
	for i := range users {
		e := schema.Event{PostID: foldtest.PostAt(2, i%7), UserID: uint64(i + 1), Action: schema.Like,
			TimeMs: int64(i+1) * 60_000, Region: schema.Region{'U', 'S', '-', 'C', 'A'}}
		rec := foldtest.Record(2, int64(100+i), "", "")
		rec.Value = schema.AppendEvent(nil, &e)
		records = append(records, rec)
	}
	out := publishBatch(t, w, &foldtest.State{}, kafka.Position{Offset: 100 + users, Epoch: 3}, records...)
	pairs := map[fold.PairKey]bool{}
	sums := map[uint64]int64{}
	seq := uint64(7)
	for i, rec := range out.records {
		if post, user, ok := schema.ParsePairKey(rec.Key); ok && rec.Topic == schema.TopicState {
			var p schema.Pair
			require.NoError(t, schema.DecodePair(rec.Value, &p))
			require.Equal(t, int64(user)*60_000, p.TimeMs)
			pairs[fold.PairKey{PostID: post, UserID: user}] = true
		}
		if rec.Topic != schema.TopicUpdates {
			continue
		}
		var u schema.Update
		require.NoError(t, schema.DecodeUpdate(rec.Value, &u))
		require.Equal(t, seq, u.Seq, "without gaps")
		seq++
		require.LessOrEqual(t, len(u.Deltas), schema.MaxDeltas)
		if string(rec.Key) == schema.ProgressKey {
			require.Equal(t, out.state+out.updates-1, i, "the progress record comes last")
			continue
		}
		post, err := schema.ParsePostKey(rec.Key)
		require.NoError(t, err)
		sums[post] += schema.Sum(u.Deltas).Likes
		require.Equal(t, sums[post], u.Counts.Likes, "the counts after this record")
	}
	require.Len(t, pairs, users)
	require.Len(t, sums, 7)
	require.Equal(t, seq, out.progress.NextSeq)
	require.Equal(t, 7*3+1, out.updates, "about 2,857 deltas per post take three records")
	require.Equal(t, 7+users+1, out.state, "pairs, counts and progress")
}

// Updates of a post with user buckets have their number.
func TestUpdatesNameUserBuckets(t *testing.T) {
	layout, err := schema.NewLayout(foldtest.Partitions, "42:16")
	require.NoError(t, err)
	user := uint64(1)
	for layout.PartitionOf(42, user) != 2 {
		user++
	}
	w := newTestFold(2)
	w.progress.UserBuckets = layout.UserBuckets()
	other := foldtest.PostAt(2, 0)
	require.NotEqual(t, uint64(42), other)
	out := publishBatch(t, w, &foldtest.State{}, kafka.Position{Offset: 102},
		foldtest.Record(2, 100, "42", fmt.Sprintf(`{"user_id":%d,"action":"LIKE"}`, user)),
		foldtest.Record(2, 101, fmt.Sprint(other), `{"user_id":1,"action":"LIKE"}`))
	buckets := map[string]int32{}
	for _, rec := range out.records {
		if rec.Topic == schema.TopicUpdates {
			var u schema.Update
			require.NoError(t, schema.DecodeUpdate(rec.Value, &u))
			buckets[string(rec.Key)] = u.Buckets
		}
	}
	require.Equal(t, map[string]int32{"42": 16, fmt.Sprint(other): 0, schema.ProgressKey: 0}, buckets)
}

// Concurrent work of a failed batch ends with it: the next batch uses the same memory.
func TestFailedBatchProducesNothingFurther(t *testing.T) {
	stores := store.NewSet(t.TempDir(), 1<<20, slog.New(slog.DiscardHandler))
	stores.BufferBytes = 1 << 20
	defer stores.Close()
	store := stores.New(schema.TopicState, 2)
	require.NoError(t, store.Open())
	defer store.Close()

	likes := make([]*kgo.Record, 3)
	for i := range likes {
		e := schema.Event{PostID: foldtest.PostAt(2, 0), UserID: uint64(i + 1), Action: schema.Like, TimeMs: 60_000}
		likes[i] = foldtest.Record(2, int64(i), "", "")
		likes[i].Value = schema.AppendEvent(nil, &e)
	}
	store.NewWrite().Stage(1, func(int) (key, value []byte) {
		return schema.AppendPairKey(nil, foldtest.PostAt(2, 0), 1), []byte("no pair at all")
	})
	w := newTestFold(2)
	w.FoldChunk, w.store = 1, store
	underWay := 0
	w.Concurrently = func(f func()) func() {
		underWay++
		return sync.OnceFunc(func() { f(); underWay-- })
	}
	batch, out := &stream.Batch{Records: likes}, &output{progress: w.progress, store: store.NewWrite()}
	err := w.transact(t.Context(), nil, batch, out)
	require.ErrorContains(t, err, "folding: ")
	require.Zero(t, underWay)
	require.Len(t, w.classified[1].Events, 1, "the second chunk was being classified")
}
