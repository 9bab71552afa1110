package audit

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/devtest"
	"kudos/ops/topics"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

const partitions = 2

func TestMain(m *testing.M) {
	visibleTimeout = 2 * time.Second
	os.Exit(devtest.Main(m))
}

// world is a broker and a database, with what a fold and a like-count that are no more
// have written there.
type world struct {
	t      *testing.T
	broker *kfake.Cluster
	kafka  kafka.Options
	cl     *kgo.Client
	db     *sqlx.DB
	shards *sql.Shards
	source sql.Source
	parts  [partitions]published
}

// published is a partition of like-updates.
type published struct {
	progress schema.Progress
	counts   map[uint64]schema.Counts
	batches  []batch // that MySQL has not applied
	applied  sql.Position
}

// batch is what a transaction of the fold did to MySQL.
type batch struct {
	to     sql.Position
	counts []sql.CountDelta
	hours  []sql.HourDelta
}

func newWorld(t *testing.T) *world {
	w := &world{t: t}
	w.broker, w.kafka = devtest.Broker(t)
	_, err := topics.Apply(t.Context(), w.kafka, schema.Layout{Partitions: partitions}, 1, devtest.Log())
	require.NoError(t, err)
	// The tests say how old a record is.
	w.setting("message.timestamp.type", "CreateTime")
	w.cl, err = w.kafka.NewClient(devtest.Log(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(w.cl.Close)
	var o sql.Options
	o, w.db = devtest.Database(t)
	devtest.Migrate(t, o)
	w.shards, err = sql.Open(o, devtest.Log())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.shards.Close()) })
	w.source = sql.Source{Topic: schema.TopicUpdates, TopicID: w.broker.TopicInfo(schema.TopicUpdates).TopicID, Partitions: partitions}
	for p := range int32(partitions) {
		last, err := table.LastProgress(t.Context(), w.cl, p)
		require.NoError(t, err)
		position, err := w.shards.Of(p).Position(t.Context(), w.source, p)
		require.NoError(t, err)
		w.parts[p] = published{progress: *last, counts: map[uint64]schema.Counts{}, applied: position}
	}
	return w
}

// setting sets one of like-updates.
func (w *world) setting(name, value string) {
	cl, err := w.kafka.NewClient(devtest.Log())
	require.NoError(w.t, err)
	defer cl.Close()
	_, err = kadm.NewClient(cl).AlterTopicConfigs(w.t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, schema.TopicUpdates)
	require.NoError(w.t, err)
}

// likedAt is when all reactions of these tests happen.
var likedAt = time.Date(2024, 5, 1, 12, 34, 0, 0, time.UTC)

// like publishes one more like of each post, at a time of day of the broker.
func (w *world) like(partition int32, at time.Time, posts ...uint64) {
	w.t.Helper()
	p := &w.parts[partition]
	var b batch
	var state, updates []*kgo.Record
	next := func(u schema.Update, key []byte) {
		u.Seq, u.SourceOffset = p.progress.NextSeq, p.progress.NextOffset+1
		p.progress.NextSeq++
		updates = append(updates, &kgo.Record{Topic: schema.TopicUpdates, Key: key, Value: schema.AppendUpdate(nil, &u)})
	}
	region := schema.Region{'U', 'S'}
	for _, post := range posts {
		require.Equal(w.t, partition, schema.PartitionFor(post, partitions), "post %d", post)
		c := p.counts[post].Plus(schema.Counts{Likes: 1})
		p.counts[post] = c
		next(schema.Update{Counts: c, Deltas: []schema.Delta{{Region: region, Minute: likedAt.Unix() / 60, Likes: 1}}}, schema.AppendPostKey(nil, post))
		b.counts = append(b.counts, sql.CountDelta{PostID: post, Likes: 1})
		b.hours = append(b.hours, sql.HourDelta{Hour: likedAt.Unix() / 3600, Region: region.String(), Likes: 1})
		pair := schema.Pair{Reaction: schema.Liked, TimeMs: likedAt.UnixMilli(), SinceMs: likedAt.UnixMilli(), Region: region}
		state = append(state,
			&kgo.Record{Key: schema.AppendPairKey(nil, post, uint64(c.Likes)), Value: schema.AppendPair(nil, &pair)},
			&kgo.Record{Key: schema.AppendCountsKey(nil, post), Value: schema.AppendCounts(nil, c)})
	}
	next(schema.ProgressUpdate(p.progress.Layouts, false), []byte(schema.ProgressKey))
	p.progress.NextOffset++
	w.write(partition, at, updates...)
	w.state(partition, append(state, &kgo.Record{Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, &p.progress)})...)
	b.to = sql.Position{NextOffset: w.broker.PartitionInfo(schema.TopicUpdates, partition).HighWatermark, NextSeq: p.progress.NextSeq}
	p.batches = append(p.batches, b)
}

// likeLater publishes a like in a moment; wait returns when it has.
func (w *world) likeLater() (wait func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		time.Sleep(100 * time.Millisecond)
		w.like(0, time.Now(), postIn(0))
	})
	return wg.Wait
}

// state writes to the state table.
func (w *world) state(partition int32, records ...*kgo.Record) {
	for _, rec := range records {
		rec.Topic = schema.TopicState
	}
	w.write(partition, time.Now(), records...)
}

func (w *world) write(partition int32, at time.Time, records ...*kgo.Record) {
	w.t.Helper()
	for _, rec := range records {
		rec.Partition, rec.Timestamp = partition, at
	}
	require.NoError(w.t, w.cl.ProduceSync(w.t.Context(), records...).FirstErr())
}

// apply has MySQL count what was published.
func (w *world) apply(partition int32) {
	w.t.Helper()
	p := &w.parts[partition]
	for _, b := range p.batches {
		require.NoError(w.t, w.shards.Of(partition).Apply(w.t.Context(), w.source, partition, p.applied, b.to, b.counts, b.hours))
		p.applied = b.to
	}
	p.batches = nil
}

func (w *world) options(deep bool) Options {
	o := DefaultOptions()
	o.Deep, o.TempDir, o.CacheBytes = deep, w.t.TempDir(), 1<<20
	return o
}

func (w *world) audit(deep bool) *Report {
	w.t.Helper()
	r, err := Run(w.t.Context(), w.options(deep), w.kafka, w.shards, devtest.Log())
	require.NoError(w.t, err)
	return r
}

// postIn returns a post of a partition.
func postIn(partition int32) uint64 {
	for post := uint64(1); ; post++ {
		if schema.PartitionFor(post, partitions) == partition {
			return post
		}
	}
}
