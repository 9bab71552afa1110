package live

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/httpserver"
	"kudos/integration/testrun"
	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

const patience = testkit.Patience

// fakeLikes is a view of the state table that the test writes. A post is in the partition of its remainder.
type fakeLikes struct {
	watch func(wire.Position, []view.Change)
	mu    struct {
		sync.Mutex
		epochs []string // by partition
		asOf   []int64
		down   map[int32]bool // not ready
		counts map[uint64]schema.Counts
		reads  int
	}
	beforeRead, afterRead func() // called by Counts
}

const epochOne, epochTwo = "00000001", "00000002"

func newLikes(partitions int) *fakeLikes {
	f := &fakeLikes{beforeRead: func() {}, afterRead: func() {}}
	f.mu.epochs, f.mu.asOf = make([]string, partitions), make([]int64, partitions)
	for p := range partitions {
		f.mu.epochs[p] = epochOne
	}
	f.mu.down, f.mu.counts = map[int32]bool{}, map[uint64]schema.Counts{}
	return f
}

func (f *fakeLikes) readyLocked(partition int32) error {
	if f.mu.down[partition] {
		return &view.NotReadyError{Topic: schema.TopicState, Partition: partition, Behind: 17}
	}
	return nil
}

// PartitionsOf gives posts above sharedPost user buckets in all partitions.
func (f *fakeLikes) PartitionsOf(post uint64) ([]int32, error) {
	if post > sharedPost {
		return []int32{0, 1, 2}[:len(f.mu.asOf)], nil
	}
	return []int32{int32(post % uint64(len(f.mu.asOf)))}, nil
}

const sharedPost = 1_000_000

func (f *fakeLikes) Epoch(partition int32) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.epochs[partition], f.readyLocked(partition)
}

func (f *fakeLikes) AsOf(partition int32) (wire.Position, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return wire.Position{Partition: partition, Offset: f.mu.asOf[partition]}, f.readyLocked(partition)
}

func (f *fakeLikes) Counts(posts []uint64) (counts []schema.Counts, asOf []wire.Position, err error) {
	f.beforeRead()
	defer f.afterRead()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.reads++
	for _, post := range posts {
		owners, _ := f.PartitionsOf(post)
		for _, partition := range owners {
			if err := f.readyLocked(partition); err != nil {
				return nil, nil, err
			}
			if len(asOf) == 0 || asOf[len(asOf)-1].Partition < partition {
				asOf = append(asOf, wire.Position{Partition: partition, Offset: f.mu.asOf[partition]})
			}
		}
		counts = append(counts, f.mu.counts[post])
	}
	return counts, asOf, nil
}

func (f *fakeLikes) Watch(fn func(wire.Position, []view.Change)) { f.watch = fn }

// commit advances a partition to an offset, then calls watch: one goroutine at a time per partition, as in the view.
func (f *fakeLikes) commit(partition int32, offset int64, changes ...view.Change) {
	f.apply(partition, offset, changes...)
	f.watch(wire.Position{Partition: partition, Offset: offset}, append([]view.Change{}, changes...))
}

// apply is commit without the call of watch.
func (f *fakeLikes) apply(partition int32, offset int64, changes ...view.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.asOf[partition] = offset
	for _, c := range changes {
		f.mu.counts[c.PostID] = c.Counts
	}
}

func (f *fakeLikes) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func likes(post uint64, n int64) view.Change {
	return view.Change{PostID: post, Counts: schema.Counts{Likes: n}}
}

// fakeRankings is a view of trending with one partition.
type fakeRankings struct {
	watch func(*view.Ranking)
	mu    struct {
		sync.Mutex
		newest map[rankingKey]*view.Ranking
		down   bool
		epoch  string
	}
}

func newRankings() *fakeRankings {
	f := &fakeRankings{}
	f.mu.newest, f.mu.epoch = map[rankingKey]*view.Ranking{}, epochOne
	return f
}

func (f *fakeRankings) Partition(string, string) (int32, error) { return 2, nil }

func (f *fakeRankings) Epoch(int32) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.epoch, nil
}

func (f *fakeRankings) Get(region, window string) (*view.Ranking, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.down {
		return nil, &view.NotReadyError{Topic: schema.TopicTrending, Partition: 2, Behind: -1}
	}
	return f.mu.newest[rankingKey{region, window}], nil
}

func (f *fakeRankings) Watch(fn func(*view.Ranking)) { f.watch = fn }

func (f *fakeRankings) put(region, window string, offset int64, posts ...uint64) {
	r := &view.Ranking{
		Ranking: &schema.Ranking{Version: schema.RankingVersion, Region: region, Window: window, Score: "count",
			TopN: 10},
		AsOf: wire.Position{Partition: 2, Offset: offset},
	}
	for i, post := range posts {
		r.Posts = append(r.Posts, schema.RankedPost{Rank: i + 1, PostID: post, Likes: 100 - int64(i)})
	}
	f.mu.Lock()
	f.mu.newest[rankingKey{region, window}] = r
	f.mu.Unlock()
	f.watch(r)
}

func slots(total int) *httpserver.Slots {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "refused"}, []string{"kind"})
	return httpserver.NewSlots(total, "", "", "", refused)
}

type rig struct {
	*Hub
	t        testing.TB
	likes    *fakeLikes
	rankings *fakeRankings
	metrics  *prometheus.Registry
	stop     func() // ends Run and waits for it
}

// newHub returns a hub with options set by change; it does not run.
func newHub(
	t testing.TB, likes *fakeLikes, rankings *fakeRankings, reg prometheus.Registerer, change func(*Options),
) *Hub {
	t.Helper()
	o := Options{
		Slots: slots(10_000), ClientOf: httpserver.Networks{}.ClientOf, MaxPosts: 100,
		Interval: 200 * time.Millisecond, Heartbeat: 15 * time.Second, WriteTimeout: 10 * time.Second,
	}
	if change != nil {
		change(&o)
	}
	h, err := New(o, likes, rankings, slog.New(slog.DiscardHandler), reg)
	require.NoError(t, err)
	return h
}

// start runs a hub until the test ends, and then requires that nothing is left of it.
func start(t testing.TB, partitions int, change func(*Options)) *rig {
	t.Helper()
	testkit.Label(t)
	r := &rig{t: t, likes: newLikes(partitions), rankings: newRankings(), metrics: prometheus.NewRegistry()}
	r.Hub = newHub(t, r.likes, r.rankings, r.metrics, change)
	stop := testrun.Start(t, "the hub", patience, r.Run)
	r.stop = sync.OnceFunc(func() {
		stop()
		assert.Zero(t, r.open(), "streams are left")
		assert.Zero(t, r.subjects(), "subjects are left")
	})
	t.Cleanup(r.stop)
	testkit.WaitFor(t, "the hub to run", func() bool {
		r.Hub.mu.Lock()
		defer r.Hub.mu.Unlock()
		return r.Hub.mu.phase == running
	})
	return r
}

func (r *rig) subjects() int { return subjectsOf(r.posts) + subjectsOf(r.ranked) }

func subjectsOf[K comparable](r *registry[K]) (n int) {
	for _, w := range r.all() {
		w.mu.Lock()
		n += len(w.mu.subjects)
		w.mu.Unlock()
	}
	return n
}

func (r *rig) requireOpen(n int) {
	r.t.Helper()
	testkit.WaitFor(r.t, fmt.Sprintf("%d open streams", n), func() bool { return r.open() == n })
}

func (r *rig) requireMetric(want int, name, label, value string) {
	r.t.Helper()
	require.EqualValues(r.t, want, apikit.Metric(r.t, r.metrics, "kudos_reader_streams"+name, label, value), value)
}

// shown is a message as a client gets it.
type shown struct{ event, id, data string }

func (m shown) decode(t testing.TB, event string, into any) {
	t.Helper()
	require.Equal(t, event, m.event)
	require.NoError(t, json.Unmarshal([]byte(m.data), into), "%s", m.data)
}

func (m shown) likes(t testing.TB) (body wire.PostLikes) {
	t.Helper()
	m.decode(t, "likes", &body)
	return body
}

func (m shown) first(t testing.TB) uint64 {
	t.Helper()
	var body wire.Ranking
	m.decode(t, "trending", &body)
	return body.Posts[0].PostID
}

// fakeConn is a client in this process.
type fakeConn struct {
	leave   func()        // ends the stream, like its client
	gate    chan struct{} // if not nil, sends wait until release closes it
	stuck   chan struct{} // holds one element while a send waits
	release func()
	mu      struct {
		sync.Mutex
		got        []shown
		heartbeats int
		closed     error
	}
}

func (c *fakeConn) locked(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

func (c *fakeConn) send(news iter.Seq2[[]byte, *message]) (sent int, err error) {
	for id, m := range news {
		if c.gate != nil {
			select {
			case c.stuck <- struct{}{}:
			default:
			}
			<-c.gate
		}
		c.locked(func() { c.mu.got = append(c.mu.got, shown{m.event, string(id), string(m.data)}) })
		sent++
	}
	return sent, nil
}

func (c *fakeConn) heartbeat(context.Context) error {
	c.locked(func() { c.mu.heartbeats++ })
	return nil
}

func (c *fakeConn) close(cause error) { c.locked(func() { c.mu.closed = cause }) }

// take returns what has arrived since the last call.
func (c *fakeConn) take() (got []shown) {
	c.locked(func() { got, c.mu.got = c.mu.got, nil })
	return got
}

func (c *fakeConn) cause() (err error) { c.locked(func() { err = c.mu.closed }); return err }

func (c *fakeConn) beats() (n int) { c.locked(func() { n = c.mu.heartbeats }); return n }

func (r *rig) watch(q *wanted) *fakeConn { r.t.Helper(); return r.watchOn(&fakeConn{}, q) }

// watchSlowly opens a stream whose client accepts nothing until it is released; one message is in flight then.
func (r *rig) watchSlowly(q *wanted) *fakeConn {
	r.t.Helper()
	c := r.watchOn(&fakeConn{gate: make(chan struct{}), stuck: make(chan struct{}, 1)}, q)
	c.release = sync.OnceFunc(func() { close(c.gate) })
	r.t.Cleanup(c.release)
	<-c.stuck
	return c
}

func (r *rig) watchOn(c *fakeConn, q *wanted) *fakeConn {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan *refusal, 1)
	go func() { ended <- r.show(ctx, q, kindSSE, func(*stream) (conn, *refusal) { return c, nil }) }()
	c.leave = sync.OnceFunc(func() { cancel(); assert.Nil(r.t, <-ended) })
	r.t.Cleanup(c.leave)
	return c
}

// requireNoGoroutines waits until no goroutine but the test's is in this package's or the WebSocket library's code.
func requireNoGoroutines(t *testing.T) {
	t.Helper()
	testkit.WaitFor(t, "all goroutines to end", func() bool {
		return len(testkit.Goroutines(t, "reader/live.(*", "coder/websocket")) == 0
	})
}
