package forget

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/dev/testkit"
	"kudos/integration/testrun"
	"kudos/schema"
)

const testPartitions, patience = 4, 20 * time.Second

// world is a broker with the topics, and a stand-in for the processors.
type world struct {
	*devtest.Kafka
	t       *testing.T
	buckets schema.UserBuckets
}

func newWorld(t *testing.T, buckets schema.UserBuckets) *world {
	topics := kfake.SeedTopics(testPartitions, schema.TopicLikes, schema.TopicState, schema.TopicDLT)
	w := &world{Kafka: devtest.NewKafka(t, topics), t: t, buckets: buckets}
	for p := range int32(testPartitions) {
		w.Write(w.progress(p, 0))
	}
	return w
}

func (w *world) progress(partition int32, next int64) *kgo.Record {
	return devtest.ProgressRecord(partition, schema.Progress{NextOffset: next, LeaderEpoch: -1,
		SourceID: w.Broker.TopicInfo(schema.TopicLikes).TopicID, Partitions: testPartitions, UserBuckets: w.buckets})
}

func eventRecord(post, user uint64, action schema.Action, timeMs int64) *kgo.Record {
	e := schema.Event{PostID: post, UserID: user, Action: action, TimeMs: timeMs, Region: schema.Region{'D', 'E'}}
	return &kgo.Record{Topic: schema.TopicLikes, Partition: schema.PartitionFor(post, testPartitions),
		Key: schema.AppendPostKey(nil, post), Value: schema.AppendEvent(nil, &e)}
}

func (w *world) records(topic string) (records []*kgo.Record) {
	for p := range int32(testPartitions) {
		records = append(records, w.Records(topic, p)...)
	}
	return records
}

func (w *world) events() (events []schema.Event) {
	for _, rec := range w.records(schema.TopicLikes) {
		var e schema.Event
		require.NoError(w.t, schema.DecodeEvent(rec.Key, rec.Value, &e))
		require.Equal(w.t, schema.PartitionFor(e.PostID, testPartitions), rec.Partition, "post %d", e.PostID)
		events = append(events, e)
	}
	return events
}

// reactions are the pairs in the state table, including "no reaction".
func (w *world) reactions() map[pairKey]schema.Pair {
	pairs := map[pairKey]schema.Pair{}
	for _, rec := range w.records(schema.TopicState) {
		if post, user, ok := schema.ParsePairKey(rec.Key); ok {
			var p schema.Pair
			require.NoError(w.t, schema.DecodePair(rec.Value, &p))
			pairs[pairKey{post, user}] = p
		}
	}
	return pairs
}

func standing(pairs map[pairKey]schema.Pair) map[pairKey]schema.Reaction {
	s := map[pairKey]schema.Reaction{}
	for k, p := range pairs {
		if p.Reaction != schema.NoReaction {
			s[k] = p.Reaction
		}
	}
	return s
}

// fold stands in for processors: it folds likes into the state table, one at a time, from where it stopped, until stop.
func (w *world) fold() (stop func()) {
	pairs := w.reactions()
	next := map[int32]kgo.Offset{}
	for p, offset := range w.folded() {
		next[p] = kgo.NewOffset().At(offset)
	}
	cl := w.NewClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{schema.TopicLikes: next}),
		kgo.FetchMaxWait(50*time.Millisecond), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	return testrun.Start(w.t, "the fold", patience, func(ctx context.Context) error {
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachRecord(func(rec *kgo.Record) { w.foldOne(rec, pairs) })
		}
		return nil
	})
}

func (w *world) folded() map[int32]int64 {
	next := map[int32]int64{}
	for _, rec := range w.records(schema.TopicState) {
		if string(rec.Key) == schema.StateProgressKey {
			var p schema.Progress
			require.NoError(w.t, schema.DecodeProgress(rec.Value, &p))
			next[rec.Partition] = p.NextOffset
		}
	}
	return next
}

func (w *world) waitFolded() {
	want := map[int32]int64{}
	for p := range int32(testPartitions) {
		want[p] = w.End(schema.TopicLikes, p)
	}
	all := func() bool { return maps.Equal(want, w.folded()) }
	require.Eventually(w.t, all, patience, 20*time.Millisecond, "the events are not folded")
}

func (w *world) foldOne(rec *kgo.Record, pairs map[pairKey]schema.Pair) {
	var e schema.Event
	err := schema.DecodeEvent(rec.Key, rec.Value, &e)
	if err == nil {
		e.ResolveTime(rec.Timestamp.UnixMilli())
		key := pairKey{e.PostID, e.UserID}
		p, known := pairs[key]
		if !known || e.TimeMs > p.TimeMs || e.TimeMs == p.TimeMs && rec.Offset > p.Offset {
			p = schema.Pair{Reaction: e.Action.Reaction(), TimeMs: e.TimeMs, Offset: rec.Offset, Region: e.Region}
			p.SinceMs = e.TimeMs
			pairs[key] = p
		}
		folded := devtest.PairRecord(rec.Partition, e.PostID, e.UserID, p)
		ctx := context.WithoutCancel(w.t.Context())
		err = w.Client.ProduceSync(ctx, folded, w.progress(rec.Partition, rec.Offset+1)).FirstErr()
	}
	if err != nil {
		w.t.Errorf("fold: %v", err)
	}
}

func (w *world) run(o Options) (*Report, error) {
	return Run(testkit.Context(w.t), o, w.Options, devtest.Log())
}

func (w *world) mustRun(o Options) *Report {
	r, err := w.run(o)
	require.NoError(w.t, err)
	return r
}

func options(kind Kind, ids ...uint64) Options {
	o := DefaultOptions()
	o.Kind, o.IDs = kind, ids
	return o
}
