package view

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/testrun"
	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream/kafka"
)

const (
	partitions = 3
	patience   = 30 * time.Second
)

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// broker is an embedded one that has the topics.
func broker(t *testing.T, topics ...string) (*kfake.Cluster, kafka.Options) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics...))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	kafka := kafka.DefaultOptions()
	kafka.Brokers = cluster.ListenAddrs()
	kafka.RequestTimeout = 5 * time.Second
	return cluster, kafka
}

// reaction is one pair of the model.
type reaction struct {
	schema.Reaction
	sinceMs int64
	region  schema.Region
}

// snapshot is what a partition's copy must be as of a place in likes.
type snapshot struct {
	counts map[uint64]schema.Counts
	pairs  map[uint64]map[uint64]reaction // by post, user
}

// fold writes what the fold would: transactions of pairs, counts and progress. It
// remembers what each partition was after each.
type fold struct {
	t      *testing.T
	cl     []*kgo.Client // a transactional one each partition
	random *rand.Rand
	id     schema.TopicID
	// torn, if set, writes without transactions: a reader sees each piece as it comes,
	// as where a fetch ends within a transaction.
	torn *kgo.Client

	mu struct {
		sync.Mutex
		after [partitions]map[int64]snapshot // by NextOffset
		last  [partitions]int64
	}
}

func newFold(t *testing.T, kafka kafka.Options, seed uint64) *fold {
	f := &fold{t: t, random: rand.New(rand.NewPCG(seed, 1)), id: schema.TopicID{1, 2, 3, 4}}
	for p := range partitions {
		cl, err := kafka.NewClient(discardLog(),
			kgo.DefaultProduceTopic(schema.TopicState), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.TransactionalID("fold-"+string(rune('0'+p))))
		require.NoError(t, err)
		t.Cleanup(cl.Close)
		f.cl = append(f.cl, cl)
		f.mu.after[p] = map[int64]snapshot{}
		f.transaction(int32(p), 0)
	}
	return f
}

// tear has what is committed from now on come in pieces.
func (f *fold) tear(kafka kafka.Options) {
	cl, err := kafka.NewClient(discardLog(), kgo.DefaultProduceTopic(schema.TopicState), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(f.t, err)
	f.t.Cleanup(cl.Close)
	f.torn = cl
}

// posts that the model speaks of; some are never liked.
const posts, users = 40, 30

func postsOf(partition int32) (of []uint64) {
	for post := uint64(1); post <= posts; post++ {
		if schema.PartitionFor(post, partitions) == partition {
			of = append(of, post)
		}
	}
	return of
}

func cloneSnapshot(s snapshot) snapshot {
	c := snapshot{counts: map[uint64]schema.Counts{}, pairs: map[uint64]map[uint64]reaction{}}
	for post, n := range s.counts {
		c.counts[post] = n
	}
	for post, users := range s.pairs {
		c.pairs[post] = map[uint64]reaction{}
		for user, r := range users {
			c.pairs[post][user] = r
		}
	}
	return c
}

// transaction folds some random events of a partition, and commits them.
func (f *fold) transaction(partition int32, events int) {
	f.mu.Lock()
	next := f.mu.last[partition]
	state := cloneSnapshot(f.mu.after[partition][next])
	f.mu.Unlock()

	of := postsOf(partition)
	var records []*kgo.Record
	add := func(key, value []byte) {
		records = append(records, &kgo.Record{Key: key, Value: value, Partition: partition})
	}
	touched := map[uint64]bool{}
	for range events {
		next++
		post, user := of[f.random.IntN(len(of))], f.random.Uint64N(users)+1
		pair := schema.Pair{Reaction: schema.Reaction(f.random.IntN(3)), TimeMs: next, Offset: next, SinceMs: next, Region: schema.Region{'D', 'E'}}
		if state.pairs[post] == nil {
			state.pairs[post] = map[uint64]reaction{}
		}
		count := func(r schema.Reaction, by int64) {
			c := state.counts[post]
			switch r {
			case schema.Liked:
				c.Likes += by
			case schema.Disliked:
				c.Dislikes += by
			}
			state.counts[post] = c
		}
		count(state.pairs[post][user].Reaction, -1)
		count(pair.Reaction, 1)
		state.pairs[post][user] = reaction{pair.Reaction, pair.SinceMs, pair.Region}
		add(schema.AppendPairKey(nil, post, user), schema.AppendPair(nil, &pair))
		touched[post] = true
	}
	for post := range touched {
		add(schema.AppendCountsKey(nil, post), schema.AppendCounts(nil, state.counts[post]))
	}
	progress := schema.Progress{NextOffset: next, SourceID: f.id, Partitions: partitions}
	add([]byte(schema.StateProgressKey), schema.AppendProgress(nil, &progress))

	f.mu.Lock() // before the commit, so that nobody reads what is not known here
	f.mu.after[partition][next], f.mu.last[partition] = state, next
	f.mu.Unlock()
	f.commit(partition, records)
}

func (f *fold) commit(partition int32, records []*kgo.Record) {
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	cl := f.cl[partition]
	if f.torn != nil {
		for part := range slices.Chunk(records, 5) {
			require.NoError(f.t, f.torn.ProduceSync(ctx, part...).FirstErr())
		}
		return
	}
	require.NoError(f.t, cl.BeginTransaction())
	require.NoError(f.t, cl.ProduceSync(ctx, records...).FirstErr())
	require.NoError(f.t, cl.EndTransaction(ctx, kgo.TryCommit))
}

// run commits n transactions.
func (f *fold) run(n int) {
	for range n {
		f.transaction(int32(f.random.IntN(partitions)), f.random.IntN(30))
	}
}

func (f *fold) snapshot(at wire.Position) snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.mu.after[at.Partition][at.Offset]
	require.True(f.t, ok, "no transaction ends at %s", at)
	return s
}

func (f *fold) end(partition int32) wire.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return wire.Position{Partition: partition, Offset: f.mu.last[partition]}
}

// start runs a copy; stop returns when it has ended, and is called at the end anyway.
func start(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	return testrun.Start(t, "the copy", patience, run)
}

// newLikes makes a copy that runs.
func newLikes(t *testing.T, kafka kafka.Options, dir string, reactions bool) (l *Likes, stop func()) {
	l = NewLikes(Options{StateDir: dir, CacheBytes: 8 << 20, Reactions: reactions}, kafka, discardLog())
	return l, start(t, l.Run)
}

// caughtUp waits until the copy has all that the fold has committed.
func (f *fold) caughtUp(l *Likes) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	for p := range int32(partitions) {
		require.NoError(f.t, l.Wait(ctx, f.end(p)), "partition %d: %v", p, l.Ready())
	}
}

// requireSame compares everything that the copy answers with the model, as of whatever
// place each answer names.
func (f *fold) requireSame(l *Likes) {
	f.t.Helper()
	all := make([]uint64, posts)
	for i := range all {
		all[i] = uint64(i) + 1
	}
	counts, asOf, err := l.Counts(all)
	require.NoError(f.t, err)
	require.Len(f.t, asOf, partitions)
	for i, post := range all {
		at := asOf[schema.PartitionFor(post, partitions)]
		require.Equal(f.t, f.snapshot(at).counts[post], counts[i], "post %d as of %s", post, at)
	}
	for _, post := range all {
		one, at, err := l.Counts([]uint64{post})
		require.NoError(f.t, err)
		require.Equal(f.t, f.snapshot(at[0]).counts[post], one[0], "post %d as of %s", post, at[0])
		f.requireSameLikers(l, post)
	}
}

func (f *fold) requireSameLikers(l *Likes, post uint64) {
	f.t.Helper()
	likers, next, at, err := l.Likers(post, 0, users)
	require.NoError(f.t, err)
	require.Zero(f.t, next)
	state := f.snapshot(at)
	var want []Liker
	for user := uint64(1); user <= users; user++ {
		if r := state.pairs[post][user]; r.Reaction == schema.Liked {
			want = append(want, Liker{user, r.sinceMs, r.region})
		}
	}
	require.Equal(f.t, want, likers, "likers of post %d as of %s", post, at)
	user := post%users + 1
	have, at, err := l.Reaction(post, user)
	require.NoError(f.t, err)
	if r := f.snapshot(at).pairs[post][user]; r.Reaction == schema.NoReaction {
		require.Equal(f.t, Reaction{}, have)
	} else {
		require.Equal(f.t, Reaction{r.Reaction, r.sinceMs, r.region}, have, "post %d user %d as of %s", post, user, at)
	}
}

// totals of the model.
func (f *fold) totals() (want Totals) {
	for p := range int32(partitions) {
		for _, c := range f.snapshot(f.end(p)).counts {
			want.add(schema.Counts{}, c)
		}
	}
	return want
}
