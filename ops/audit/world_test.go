package audit

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/devtest"
	"kudos/ops/topics"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/sql"
)

const partitions = 2

func TestMain(m *testing.M) {
	visibleTimeout = 2 * time.Second
	os.Exit(devtest.Main(m))
}

// world is a broker and a database with the output of a fold and a like-count.
type world struct {
	*devtest.Kafka
	t      *testing.T
	db     *sqlx.DB
	shards *sql.Shards
	source sql.Source
	parts  [partitions]published
}

// published is the state of one partition of like-updates.
type published struct {
	progress schema.Progress
	likes    int64   // of its only post
	batches  []batch // not yet applied to MySQL
	applied  sql.Position
}

// batch is the changes to MySQL by one transaction of the fold.
type batch struct {
	to     sql.Position
	counts []sql.CountDelta
	hours  []sql.HourDelta
}

func newWorld(t *testing.T) *world {
	w := &world{Kafka: devtest.NewKafka(t), t: t}
	o := topics.Options{Partitions: partitions, ReplicationFactor: 1}
	_, err := topics.Apply(t.Context(), w.Options, o, devtest.Log())
	require.NoError(t, err)
	// Tests set the age of records.
	w.Set(schema.TopicUpdates, "message.timestamp.type", "CreateTime")
	var database sql.Options
	database, w.db = devtest.Database(t)
	devtest.Migrate(t, database)
	w.shards, err = sql.Open(database, devtest.Log())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.shards.Close()) })
	id := w.Broker.TopicInfo(schema.TopicUpdates).TopicID
	w.source = sql.Source{Topic: schema.TopicUpdates, TopicID: id, Partitions: partitions}
	for p := range int32(partitions) {
		last, err := table.LastProgress(t.Context(), w.Client, p)
		require.NoError(t, err)
		position, err := w.shards.Of(p).Position(t.Context(), w.source, p)
		require.NoError(t, err)
		w.parts[p] = published{progress: *last, applied: position}
	}
	return w
}

// likedAt is the time of all reactions in these tests, and us their region.
var (
	likedAt = time.Date(2024, 5, 1, 12, 34, 0, 0, time.UTC)
	us      = schema.Region{'U', 'S'}
)

// like publishes one more like of a partition's post, with this timestamp.
func (w *world) like(partition int32, at time.Time) {
	p, post := &w.parts[partition], postIn(partition)
	p.likes++
	p.progress.NextOffset++
	counts := schema.Counts{Likes: p.likes}
	like := schema.Update{Seq: p.progress.NextSeq, SourceOffset: p.progress.NextOffset, Counts: counts,
		Deltas: []schema.Delta{{Region: us, Minute: likedAt.Unix() / 60, Likes: 1}}}
	end := schema.ProgressUpdate(p.progress.Layouts, false)
	end.Seq, end.SourceOffset = like.Seq+1, like.SourceOffset
	p.progress.NextSeq += 2
	records := []*kgo.Record{devtest.UpdateRecord(partition, post, like), devtest.UpdateRecord(partition, 0, end)}
	for _, rec := range records {
		rec.Timestamp = at
	}
	ms := likedAt.UnixMilli()
	pair := schema.Pair{Reaction: schema.Liked, TimeMs: ms, SinceMs: ms, Region: us}
	w.Write(append(records, devtest.PairRecord(partition, post, uint64(p.likes), pair),
		devtest.CountsRecord(partition, post, counts), devtest.ProgressRecord(partition, p.progress))...)
	p.batches = append(p.batches, batch{
		sql.Position{NextOffset: w.End(schema.TopicUpdates, partition), NextSeq: p.progress.NextSeq},
		[]sql.CountDelta{{PostID: post, Likes: 1}},
		[]sql.HourDelta{{Hour: likedAt.Unix() / 3600, Region: us.String(), Likes: 1}},
	})
}

// likeAndApply also applies the like to MySQL.
func (w *world) likeAndApply(partition int32) { w.like(partition, time.Now()); w.apply(partition) }

// likeLater publishes a like once a consumer reads at the end of a topic's partition 0; wait returns when it is done.
func (w *world) likeLater(topic string) (wait func()) {
	end, liked := w.End(topic, 0), make(chan struct{})
	like := sync.OnceFunc(func() { go func() { defer close(liked); w.like(0, time.Now()) }() })
	w.Broker.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.Broker.KeepControl()
		if req.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset == end {
			like()
		}
		return nil, nil, false
	})
	return func() { <-liked }
}

func (w *world) apply(partition int32) {
	p := &w.parts[partition]
	for _, b := range p.batches {
		store := w.shards.Of(partition)
		require.NoError(w.t, store.Apply(w.t.Context(), w.source, partition, p.applied, b.to, b.counts, b.hours))
		p.applied = b.to
	}
	p.batches = nil
}

func (w *world) options(deep bool) Options {
	o := DefaultOptions()
	o.Deep, o.TempDir = deep, w.t.TempDir()
	return o
}

func (w *world) audit(deep bool) *Report {
	r, err := Run(w.t.Context(), w.options(deep), w.Options, w.shards, devtest.Log())
	require.NoError(w.t, err)
	return r
}

func (w *world) requireEqual(deep bool) *Report {
	r := w.audit(deep)
	require.True(w.t, r.Equal, text(w.t, r))
	require.Empty(w.t, r.Unknown)
	require.Equal(w.t, []int32{0, 1}, compared(r))
	return r
}

// requireUnknown runs an audit and requires one unknown in partition 0 and no difference.
func (w *world) requireUnknown(says string) *Report {
	r := w.audit(false)
	require.True(w.t, r.Equal, text(w.t, r))
	require.Len(w.t, r.Unknown, 1)
	require.Contains(w.t, r.Unknown[0], says)
	require.Equal(w.t, []int32{1}, compared(r))
	return r
}

// compare runs an audit and leaves its comparison open.
func (w *world) compare(o Options) *Comparison {
	c, err := Compare(w.t.Context(), o, w.Options, w.shards, devtest.Log())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, c.Close()) })
	return c
}

func postIn(partition int32) uint64 {
	for post := uint64(1); ; post++ {
		if schema.PartitionFor(post, partitions) == partition {
			return post
		}
	}
}
