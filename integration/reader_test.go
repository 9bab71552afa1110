package integration

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/oracle"
	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// hot returns the posts with the most events, and all users.
func hot(events []schema.Event, n int) (posts, users []uint64) {
	times, all := map[uint64]int{}, map[uint64]bool{}
	for _, e := range events {
		times[e.PostID]++
		all[e.UserID] = true
	}
	posts = slices.SortedFunc(maps.Keys(times), func(a, b uint64) int {
		return cmp.Or(times[b]-times[a], cmp.Compare(a, b))
	})
	return posts[:n], slices.Sorted(maps.Keys(all))
}

// killReader kills a reader while the log is being folded, and restarts it on its state.
func (s *system) killReader(r *reader, kills int) {
	random := rand.New(rand.NewPCG(uint64(kills), 3))
	for kill := range kills {
		r.waitReady()
		s.waitFolding()
		pause(s.t, time.Duration(random.IntN(200))*time.Millisecond)
		r.kill()
		folded, end := s.standing()
		s.t.Logf("kill %d of the reader: %d of %d folded", kill, folded, end)
		r.start()
	}
}

// importFile is a delivery by `kudos import`.
func importFile(s *system, events []schema.Event) {
	s.command("import", writeCSV(s.t, events), "--brokers", s.brokerList())
}

// What a reader says is the fold of the log, and equals counts computed independently from the ratings: while events
// arrive and it is killed, when it has them all, and after a kill with its local store kept, or lost while catching up.
func TestReadersAreExactWhenTheyAreKilled(t *testing.T) {
	parallel(t, tier.Test)
	for _, tt := range []struct {
		reading
		send func(*system, []schema.Event)
		// Each depth is used only once per reading: checking all likers of all posts takes a while.
		withStore, withoutStore oracle.Depth
	}{
		{eachPerson, importFile, oracle.Sample, oracle.Everything},
		{changingMinds, shuffled.send, oracle.Everything, oracle.Sample},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newRealSystem(t)
			e := s.exactness()
			r := s.startReader("reader")
			events := tt.events(t)
			posts, users := hot(events, 4)
			watched := background(t, func(ctx context.Context) (*oracle.Watched, error) {
				return e.Watch(ctx, r.base, posts, users)
			})
			tt.send(s, events)
			// Batches are so small that the log lasts for all kills; the rest goes faster.
			processor := s.processor("processor-0", "--set", "processor.max_batch=200").start()
			s.killReader(r, 3)
			processor.kill()
			s.processor("processor-1", "--set", "processor.max_batch=1000").start()
			s.drain(2 * time.Minute)
			e.wait(r)
			e.checkWatched(watched.stop(), 10)
			want := tt.counts(t)
			all := slices.Collect(maps.Keys(want))
			requireSame(t, "after the events", want, r.counted(all))

			r.kill()
			r.start()
			e.require(r, tt.withStore)
			requireSame(t, "with the local store", want, r.counted(all))

			s.killCatchingUp(r, 3)
			e.require(r, tt.withoutStore)
			requireSame(t, "without the local store", want, r.counted(all))

			counts := s.startReader("reader-of-counts", "--set", "reader.reactions=false")
			e.require(counts, oracle.CountsOnly)
			requireSame(t, "a counts-only reader", want, counts.counted(all))
		})
	}
}

// A reader shows a transaction as a whole or not at all, even one so large that it arrives in many parts.
func TestReadersShowTransactionsWhole(t *testing.T) {
	parallel(t, tier.Test)
	const post, events = 1, 200_000
	s := newRealSystem(t)
	e := s.exactness()
	r := s.startReader("reader")
	watched := background(t, func(ctx context.Context) (*oracle.Watched, error) {
		return e.Watch(ctx, r.base, []uint64{post}, []uint64{1})
	})
	s.pour(func(send func(schema.Event)) {
		for i := range uint64(events) {
			send(like(post, 1+i, 1+int64(i)))
		}
	})
	s.processor("processor", "--set", "processor.max_batch=1000000").start()
	e.wait(r)
	before := r.requests()
	waitFor(t, time.Minute, "more requests of the watcher", func() bool { return r.requests() >= before+10 })
	e.checkWatched(watched.stop(), 1)
	require.Equal(t, map[uint64]count{post: {likes: events}}, r.counted([]uint64{post}))
}

// killCatchingUp deletes a reader's store and kills the reader while it rebuilds it, each time from what is there.
func (s *system) killCatchingUp(r *reader, kills int) {
	random := rand.New(rand.NewPCG(uint64(kills), 4))
	r.kill()
	require.NoError(s.t, os.RemoveAll(r.stateDir))
	for kill := range kills {
		r.start()
		waitFor(s.t, time.Minute, "the local stores", func() bool {
			return len(glob(s.t, r.stateDir, "reactions-*", "*", "*")) == s.partitions
		})
		pause(s.t, time.Duration(random.IntN(100))*time.Millisecond)
		ready := r.ready()
		r.kill()
		s.t.Logf("kill %d while catching up; ready: %t", kill, ready)
	}
	r.start()
}

// followed is a system with a producer and two equivalent readers.
type followed struct {
	*system
	*exactness
	producer  string // http://host:port
	processor *process
	readers   [2]*reader
}

func newFollowed(t *testing.T) *followed {
	f := &followed{system: newRealSystem(t)}
	f.exactness = f.system.exactness()
	at := stack.ReserveForTest(t)
	f.producer = "http://" + at
	f.processor = f.system.processor("processor", "--set", "processor.max_batch=100")
	producer := f.role("producer", "producer", "--set", "producer.http_addr="+at)
	f.readers = [2]*reader{f.reader("reader-0"), f.reader("reader-1")}
	f.processor.start()
	startAll(producer, f.readers[0].process, f.readers[1].process)
	return f
}

// place is the position of an event in the producer's response; a reader's as_of is the next offset.
type place struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

func TestReadersFollowTheLog(t *testing.T) {
	parallel(t, tier.Verify)
	f := newFollowed(t)
	t.Run("own_likes", f.ownLikes)
	t.Run("a_reader_that_is_behind", f.behind)
	t.Run("streams_over_restarts", f.streams)
	for _, r := range f.readers {
		f.require(r, oracle.Everything)
	}
}

// likes is a reader's response for a post or a user.
type likes struct {
	Likes    int64  `json:"likes"`
	Reaction string `json:"reaction"`
	AsOf     place  `json:"as_of"`
}

// ownLikes: a client can read its own like from any reader with the position in the producer's response.
func (f *followed) ownLikes(t *testing.T) {
	const post = 1_000_001
	for i := range uint64(200) {
		at := putLike(t, f.producer, post, 1+i)
		one, other := f.readers[i%2], f.readers[1-i%2]
		n := get[likes](t, "%s/v1/posts/%d/likes?min_offset=%d", one.base, post, at.Offset)
		require.Equal(t, likes{Likes: int64(i) + 1, AsOf: place{at.Partition, at.Offset + 1}}, n)
		r := get[likes](t, "%s/v1/posts/%d/likes/%d?min_offset=%d", other.base, post, 1+i, at.Offset)
		require.Equal(t, likes{Reaction: "LIKE", AsOf: place{at.Partition, at.Offset + 1}}, r)
	}
}

// behind: a paused reader is behind the other one, and a query that must cover what it lacks waits for it.
func (f *followed) behind(t *testing.T) {
	const post, events = 1_000_002, 20
	ahead, behind := f.readers[0], f.readers[1]
	require.NoError(t, behind.Pause())
	var last place
	for user := range uint64(events) {
		last = putLike(t, f.producer, post, 1+user)
	}
	covering := func(r *reader, at place) *task[likes] {
		url := fmt.Sprintf("%s/v1/posts/%d/likes?min_offset=%d", r.base, post, at.Offset)
		return background(t, func(ctx context.Context) (likes, error) {
			return ask[likes](ctx, http.MethodGet, url, nil, http.StatusOK)
		})
	}
	want := likes{Likes: events, AsOf: place{last.Partition, last.Offset + 1}}
	require.Equal(t, want, covering(ahead, last).wait())
	late := covering(behind, last)
	require.NoError(t, behind.Resume())
	require.Equal(t, want, late.wait())

	// No processor runs: both readers wait, and answer as soon as one does.
	require.NoError(t, f.processor.Pause())
	at := putLike(t, f.producer, post, events+1)
	var waiting []*task[likes]
	for _, r := range f.readers {
		require.Equal(t, int64(events), get[likes](t, "%s/v1/posts/%d/likes", r.base, post).Likes)
		waiting = append(waiting, covering(r, at))
	}
	require.NoError(t, f.processor.Resume())
	for _, answer := range waiting {
		require.Equal(t, likes{Likes: events + 1, AsOf: place{at.Partition, at.Offset + 1}}, answer.wait())
	}
}

// streams: if its reader dies, a stream resumes at the other from its last event, never backward, to the final counts.
func (f *followed) streams(t *testing.T) {
	posts := []uint64{1, 2, 3, 4, 5}
	var final atomic.Pointer[map[uint64]oracle.Count]
	stream := background(t, func(ctx context.Context) (*oracle.Watched, error) {
		return oracle.Follow(ctx, []string{f.readers[0].base, f.readers[1].base}, posts,
			func(newest map[uint64]oracle.Count) bool {
				want := final.Load()
				return want != nil && maps.Equal(*want, newest)
			})
	})
	f.toggles(11, 60_000)
	for kill := range 4 {
		// The reader that the stream moves to is behind.
		r, other := f.readers[kill%2], f.readers[1-kill%2]
		require.NoError(t, other.Pause())
		f.killReader(r, 1)
		require.NoError(t, other.Resume())
		r.waitReady()
	}
	f.processor.kill()
	f.system.processor("processor-1", "--set", "processor.max_batch=1000").start() // the rest goes faster
	f.drain(time.Minute)

	// One more like completes the stream.
	want, counted := map[uint64]oracle.Count{}, f.mysqlCounts()
	for _, post := range posts {
		want[post] = oracle.Count{Likes: counted[post].likes, Dislikes: counted[post].dislikes}
	}
	last := want[posts[0]]
	last.Likes++
	want[posts[0]] = last
	final.Store(&want)
	putLike(t, f.producer, posts[0], 1_000_001)
	w := stream.wait()
	f.checkWatched(w, 20)
	require.Greater(t, w.Streams, 2)
}
