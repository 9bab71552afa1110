package view

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/integration/testrun"
	"kudos/reader/wire"
	"kudos/schema"
	"kudos/stream/kafka"
)

const partitions, patience = 3, 30 * time.Second

func broker(t *testing.T, topics ...string) (*testkit.Cluster, kafka.Options) {
	t.Helper()
	return apikit.Broker(t, partitions, topics)
}

// snapshot is the expected content of a partition's view as of an offset in likes.
type snapshot struct {
	counts map[uint64]schema.Counts
	pairs  map[uint64]map[uint64]Reaction // by post and user; the zero Reaction is none
}

// fold writes transactions of reactions, counts and progress to both topics like the fold, and remembers the state
// after each.
type fold struct {
	t       *testing.T
	cluster *testkit.Cluster
	kafka   kafka.Options
	cl      []*kgo.Client // one transactional client per partition
	random  *rand.Rand
	id      schema.TopicID
	// torn, if set, writes without transactions: readers see each record on arrival, like a fetch that ends within one.
	torn *kgo.Client

	mu struct {
		sync.Mutex
		after [partitions]map[int64]snapshot // by NextOffset
		last  [partitions]int64
	}
}

// newFold returns a fold that has committed n transactions.
func newFold(t *testing.T, seed uint64, n int) *fold {
	cluster, kafka := broker(t, schema.TopicState, schema.TopicCounts, schema.TopicLikes)
	return newFoldOn(t, cluster, kafka, seed, n)
}

func newFoldOn(t *testing.T, cluster *testkit.Cluster, kafka kafka.Options, seed uint64, n int) *fold {
	f := &fold{t: t, cluster: cluster, kafka: kafka, id: schema.TopicID{1, 2, 3, 4}}
	f.random = rand.New(rand.NewPCG(seed, 1))
	for p := range partitions {
		id := fmt.Sprintf("fold-%d", p)
		f.cl = append(f.cl, cluster.Client(kgo.TransactionalID(id)))
		f.mu.after[p] = map[int64]snapshot{}
		f.transaction(int32(p), 0)
	}
	f.run(n)
	return f
}

// tear makes later commits arrive in pieces.
func (f *fold) tear() { f.torn = f.cluster.Client() }

func (f *fold) recreate(topic string) {
	adm := kadm.NewClient(f.cluster.Client())
	_, err := adm.DeleteTopic(f.t.Context(), topic)
	require.NoError(f.t, err)
	_, err = adm.CreateTopic(f.t.Context(), partitions, 1, nil, topic)
	require.NoError(f.t, err)
}

// like appends n events to a partition of likes, which are not folded.
func (f *fold) like(partition int32, n int) {
	for range n {
		f.cluster.Produce(&kgo.Record{Topic: schema.TopicLikes, Partition: partition, Value: []byte("{}")})
	}
}

const posts, users = 40, 30 // of the model; some posts are never liked

func postsOf(partition int32) (of []uint64) {
	for post := uint64(1); post <= posts; post++ {
		if schema.PartitionFor(post, partitions) == partition {
			of = append(of, post)
		}
	}
	return of
}

func (s snapshot) clone() snapshot {
	c := snapshot{counts: map[uint64]schema.Counts{}, pairs: map[uint64]map[uint64]Reaction{}}
	maps.Copy(c.counts, s.counts)
	for post, users := range s.pairs {
		c.pairs[post] = maps.Clone(users)
	}
	return c
}

func (f *fold) transaction(partition int32, events int) {
	f.mu.Lock()
	next := f.mu.last[partition]
	state := f.mu.after[partition][next].clone()
	f.mu.Unlock()

	of := postsOf(partition)
	var records []*kgo.Record
	add := func(key, value []byte) { records = append(records, &kgo.Record{Key: key, Value: value}) }
	touched := map[uint64]bool{}
	for range events {
		next++
		post, user := of[f.random.IntN(len(of))], f.random.Uint64N(users)+1
		pair := schema.Pair{
			Reaction: schema.Reaction(f.random.IntN(3)), TimeMs: next, Offset: next, SinceMs: next,
			Region: schema.Region{'D', 'E'},
		}
		if state.pairs[post] == nil {
			state.pairs[post] = map[uint64]Reaction{}
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
		state.pairs[post][user] = Reaction{pair.Reaction, pair.SinceMs, pair.Region, pair.Void}
		if pair.Reaction == schema.NoReaction {
			delete(state.pairs[post], user)
		}
		add(schema.AppendPairKey(nil, post, user), schema.AppendPair(nil, &pair))
		touched[post] = true
	}
	for post := range touched {
		add(schema.AppendCountsKey(nil, post), schema.AppendCounts(nil, state.counts[post]))
	}
	f.commitAs(partition, next, state, records)
}

// commitAs commits a transaction after which a partition has this state, as of next.
func (f *fold) commitAs(partition int32, next int64, state snapshot, records []*kgo.Record) {
	f.mu.Lock() // before the commit, since a reader may see it at once
	f.mu.after[partition][next], f.mu.last[partition] = state, next
	f.mu.Unlock()
	f.commit(partition, schema.Progress{NextOffset: next}, records...)
}

// commit commits records followed by a progress record, and returns the position.
func (f *fold) commit(partition int32, progress schema.Progress, records ...*kgo.Record) wire.Position {
	progress.SourceID, progress.Partitions = f.id, partitions
	value := schema.AppendProgress(nil, &progress)
	records = append(records, &kgo.Record{Key: []byte(schema.StateProgressKey), Value: value})
	var all []*kgo.Record
	for _, rec := range records {
		rec.Topic, rec.Partition = schema.TopicState, partition
		all = append(all, rec)
		if len(rec.Key) != schema.PairKeySize {
			counts := *rec
			counts.Topic = schema.TopicCounts
			all = append(all, &counts)
		}
	}
	ctx := testkit.Context(f.t)
	if f.torn != nil {
		for part := range slices.Chunk(all, 5) {
			require.NoError(f.t, f.torn.ProduceSync(ctx, part...).FirstErr())
		}
	} else {
		cl := f.cl[partition]
		require.NoError(f.t, cl.BeginTransaction())
		require.NoError(f.t, cl.ProduceSync(ctx, all...).FirstErr())
		require.NoError(f.t, cl.EndTransaction(ctx, kgo.TryCommit))
	}
	return wire.Position{Partition: partition, Offset: progress.NextOffset}
}

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

// start runs a view. stop returns once it has ended, and is called at the end of the test in any case.
func start(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	return testrun.Start(t, "the view", patience, run)
}

// newCopy returns a view with reactions, which does not run.
func newCopy(kafka kafka.Options, dir string) *Likes {
	return NewLikes(Options{StateDir: dir, CacheBytes: 8 << 20, Reactions: true}, kafka, testkit.Log())
}

func newLikes(t *testing.T, kafka kafka.Options) *Likes {
	l := newCopy(kafka, t.TempDir())
	start(t, l.Run)
	return l
}

// follow returns a running view that has everything the fold has committed.
func (f *fold) follow(dir string) (l *Likes, stop func()) {
	l = newCopy(f.kafka, dir)
	stop = start(f.t, l.Run)
	f.caughtUp(l)
	return l, stop
}

// wait waits until the lanes have reached positions.
func wait(t *testing.T, l *Likes, at ...wire.Position) {
	t.Helper()
	for _, p := range at {
		require.NoError(t, l.Counts.Wait(testkit.Context(t), p), "partition %d: %v", p.Partition, l.Ready())
		if l.Reactions != nil {
			require.NoError(t, l.Reactions.Wait(testkit.Context(t), p), "partition %d: %v", p.Partition, l.Ready())
		}
	}
}

func (f *fold) caughtUp(l *Likes) {
	f.t.Helper()
	for p := range int32(partitions) {
		wait(f.t, l, f.end(p))
	}
}

// requireSame compares all that can be read from the view with the model, as of the position that each read returns.
func (f *fold) requireSame(l *Likes) {
	f.t.Helper()
	all := make([]uint64, posts)
	for i := range all {
		all[i] = uint64(i) + 1
	}
	counts, asOf, err := l.Counts.Counts(all)
	require.NoError(f.t, err)
	require.Len(f.t, asOf, partitions)
	for i, post := range all {
		at := asOf[schema.PartitionFor(post, partitions)]
		require.Equal(f.t, f.snapshot(at).counts[post], counts[i], "post %d as of %s", post, at)
		one, alone, err := l.Counts.Counts(all[i : i+1])
		require.NoError(f.t, err)
		require.Equal(f.t, f.snapshot(alone[0]).counts[post], one[0], "post %d as of %s", post, alone[0])
		f.requireSameLikers(l, post)
	}
}

// requireAll requires the view to have everything that the fold has committed, and nothing else.
func (f *fold) requireAll(l *Likes) {
	f.t.Helper()
	f.caughtUp(l)
	f.requireSame(l)
	var want Totals
	for p := range int32(partitions) {
		for _, c := range f.snapshot(f.end(p)).counts {
			want.add(schema.Counts{}, c)
		}
	}
	require.Equal(f.t, want, l.Counts.Totals())
}

// likersOf returns a page of all partitions of a post, as the API does. asOf is the position of the first of them.
func likersOf(
	l *Likes, post, after uint64, limit int,
) (likers []wire.Liker, next uint64, asOf wire.Position, err error) {
	partitions, err := l.Reactions.PartitionsOf(post)
	if err != nil {
		return nil, 0, asOf, err
	}
	pages := make([]Page, len(partitions))
	for i, p := range slices.Backward(partitions) {
		if pages[i], asOf, err = l.Reactions.Likers(p, post, after, limit); err != nil {
			return nil, 0, asOf, err
		}
	}
	page := MergePages(pages, limit)
	return page.Likers, page.Next, asOf, nil
}

// reactionOf asks the partitions that may have a reaction, as the API does.
func reactionOf(l *Likes, post, user uint64) (reaction Reaction, asOf wire.Position, err error) {
	partitions, err := l.Reactions.PartitionsOfUser(post, user)
	if err != nil {
		return reaction, asOf, err
	}
	for i, p := range slices.Backward(partitions) {
		list, at, err := l.Reactions.Of(p, user, []uint64{post})
		if err != nil {
			return reaction, asOf, err
		}
		if i == 0 && reaction.Reaction == schema.NoReaction || list[0].Reaction != schema.NoReaction {
			reaction, asOf = list[0], at
		}
	}
	return reaction, asOf, nil
}

func (f *fold) requireSameLikers(l *Likes, post uint64) {
	f.t.Helper()
	likers, next, at, err := likersOf(l, post, 0, users)
	require.NoError(f.t, err)
	require.Zero(f.t, next)
	state := f.snapshot(at)
	var want []wire.Liker
	for user := uint64(1); user <= users; user++ {
		if r := state.pairs[post][user]; r.Reaction == schema.Liked {
			want = append(want, wire.Liker{UserID: user, Since: wire.Millis(r.SinceMs), Region: r.Region.String()})
		}
	}
	require.Equal(f.t, want, likers, "likers of post %d as of %s", post, at)
	user := post%users + 1
	have, at, err := reactionOf(l, post, user)
	require.NoError(f.t, err)
	require.Equal(f.t, f.snapshot(at).pairs[post][user], have, "post %d user %d as of %s", post, user, at)
}
