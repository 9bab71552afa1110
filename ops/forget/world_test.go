package forget

import (
	"context"
	"encoding/binary"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
)

const (
	testPartitions = 4
	patience       = 20 * time.Second
)

// world is an embedded broker with the topics, and what stands for the processors.
type world struct {
	t       *testing.T
	cluster *kfake.Cluster
	kafka   kafka.Options
	buckets schema.UserBuckets
	cl      *kgo.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, "")
}

// newWorldOf has posts with user buckets.
func newWorldOf(t *testing.T, buckets schema.UserBuckets) *world {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(testPartitions, schema.TopicLikes, schema.TopicState, schema.TopicDLT),
		kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "100000000000"})) // nothing is compacted
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	kafka := kafka.DefaultOptions()
	kafka.Brokers = cluster.ListenAddrs()
	kafka.RequestTimeout = 5 * time.Second
	w := &world{t: t, cluster: cluster, kafka: kafka, buckets: buckets}
	w.cl = w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(testPartitions) {
		w.produce(w.progress(p, 0))
	}
	return w
}

func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	cl, err := w.kafka.NewClient(slog.New(slog.DiscardHandler), opts...)
	require.NoError(w.t, err)
	w.t.Cleanup(cl.Close)
	return cl
}

func (w *world) produce(records ...*kgo.Record) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	require.NoError(w.t, w.cl.ProduceSync(ctx, records...).FirstErr())
}

func (w *world) topic(name string) kafka.TopicInfo {
	w.t.Helper()
	topics, err := kafka.LookUpTopics(w.t.Context(), w.cl, name)
	require.NoError(w.t, err)
	return topics.ByName[name]
}

// progress is a partition's progress record.
func (w *world) progress(partition int32, next int64) *kgo.Record {
	p := schema.Progress{NextOffset: next, LeaderEpoch: -1, SourceID: w.topic(schema.TopicLikes).ID, Partitions: testPartitions, UserBuckets: w.buckets}
	return &kgo.Record{Topic: schema.TopicState, Partition: partition, Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, &p)}
}

// react writes an event to likes.
func (w *world) react(post, user uint64, action schema.Action, timeMs int64) {
	w.t.Helper()
	w.produce(eventRecord(schema.Event{PostID: post, UserID: user, Action: action, TimeMs: timeMs, Region: schema.Region{'D', 'E'}}))
}

func eventRecord(e schema.Event) *kgo.Record {
	return &kgo.Record{Topic: schema.TopicLikes, Partition: schema.PartitionFor(e.PostID, testPartitions),
		Key: schema.AppendPostKey(nil, e.PostID), Value: schema.AppendEvent(nil, &e)}
}

// records reads all committed records of a topic that there are, by partition in order.
func (w *world) records(topic string) (records []*kgo.Record) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for p := range int32(testPartitions) {
		from, to, err := kafka.Bounds(ctx, w.cl, topic, p)
		require.NoError(w.t, err)
		if from == to {
			continue
		}
		require.NoError(w.t, kafka.ReadLog(ctx, w.cl, topic, p, from, func(c kafka.LogChunk) (bool, error) {
			records = append(records, c.Records...)
			return c.Next < to, nil
		}))
	}
	return records
}

// events are those in likes.
func (w *world) events() (events []schema.Event) {
	w.t.Helper()
	for _, rec := range w.records(schema.TopicLikes) {
		var e schema.Event
		require.NoError(w.t, schema.DecodeEvent(rec.Key, rec.Value, &e))
		require.Equal(w.t, schema.PartitionFor(e.PostID, testPartitions), rec.Partition, "post %d", e.PostID)
		events = append(events, e)
	}
	return events
}

// reactions are those that the state table has, "no reaction" included.
func (w *world) reactions() map[pairKey]schema.Pair {
	w.t.Helper()
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

// standing leaves out who has no reaction.
func standing(pairs map[pairKey]schema.Pair) map[pairKey]schema.Reaction {
	s := map[pairKey]schema.Reaction{}
	for k, p := range pairs {
		if p.Reaction != schema.NoReaction {
			s[k] = p.Reaction
		}
	}
	return s
}

// folder stands for the processors: it folds likes into the state table, an event after the other.
type folder struct {
	w    *world
	stop func()
}

// fold starts it where it was left, which is the state table; it ends with stop.
func (w *world) fold() *folder {
	w.t.Helper()
	pairs := w.reactions()
	next := map[int32]kgo.Offset{}
	for p := range int32(testPartitions) {
		next[p] = kgo.NewOffset().At(0)
	}
	for _, rec := range w.records(schema.TopicState) {
		if string(rec.Key) == schema.StateProgressKey {
			next[rec.Partition] = kgo.NewOffset().At(int64(binary.BigEndian.Uint64(rec.Value[1:])))
		}
	}
	cl := w.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{schema.TopicLikes: next}),
		kgo.FetchMaxWait(50*time.Millisecond), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	ctx, cancel := context.WithCancel(w.t.Context())
	f := &folder{w: w}
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachRecord(func(rec *kgo.Record) { f.add(rec, pairs) })
		}
	})
	f.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	w.t.Cleanup(f.stop)
	return f
}

func (f *folder) add(rec *kgo.Record, pairs map[pairKey]schema.Pair) {
	t := f.w.t
	var e schema.Event
	if err := schema.DecodeEvent(rec.Key, rec.Value, &e); err != nil {
		t.Errorf("fold: %v", err)
		return
	}
	e.ResolveTime(rec.Timestamp.UnixMilli())
	key := pairKey{e.PostID, e.UserID}
	if p, known := pairs[key]; !known || e.TimeMs > p.TimeMs || e.TimeMs == p.TimeMs && rec.Offset > p.Offset {
		pairs[key] = schema.Pair{Reaction: e.Action.Reaction(), TimeMs: e.TimeMs, Offset: rec.Offset, SinceMs: e.TimeMs, Region: e.Region}
	}
	p := pairs[key]
	results := f.w.cl.ProduceSync(context.WithoutCancel(t.Context()),
		&kgo.Record{Topic: schema.TopicState, Partition: rec.Partition, Key: schema.AppendPairKey(nil, e.PostID, e.UserID), Value: schema.AppendPair(nil, &p)},
		f.w.progress(rec.Partition, rec.Offset+1))
	if err := results.FirstErr(); err != nil {
		t.Errorf("fold: %v", err)
	}
}

// run forgets, with a bound.
func (w *world) run(o Options) (*Report, error) {
	w.t.Helper()
	f, err := New(o, w.kafka, slog.New(slog.DiscardHandler))
	require.NoError(w.t, err)
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	return f.Run(ctx)
}

func options(kind Kind, ids ...uint64) Options {
	o := DefaultOptions()
	o.Kind, o.IDs = kind, ids
	return o
}
