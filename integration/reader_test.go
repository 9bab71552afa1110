package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/integration/oracle"
	"kudos/integration/stack"
	"kudos/schema"
)

// reader is a reader process, at the same address whenever it is started again.
type reader struct {
	*stack.Server
	t                     testing.TB
	base, admin, stateDir string
}

// address is one of the test's own, which may go and come back.
func (s *system) address() string {
	s.t.Helper()
	at, err := stack.Reserve()
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, at.Release()) })
	return at.Address()
}

// role makes a process that is asked over HTTP; it is stopped at the end of the test.
func (s *system) role(name, role, dir string, args ...string) *stack.Server {
	p := stack.NewProgram(stack.ProgramOptions{
		Name: name, Path: s.program, Dir: dir, Log: s.log, Args: append([]string{role, "--brokers", s.brokerList()}, args...),
	})
	s.t.Cleanup(func() {
		if p.Running() {
			require.NoError(s.t, p.Stop())
		}
		s.showLog(p)
	})
	return p
}

// reader makes a reader with a local store of its own.
func (s *system) reader(name string, args ...string) *reader {
	s.t.Helper()
	dir, http := s.t.TempDir(), s.address()
	r := &reader{t: s.t, base: "http://" + http, admin: "http://" + s.address(), stateDir: filepath.Join(dir, "state")}
	r.Server = s.role(name, "reader", dir, append([]string{"--mysql-dsn", s.dsn, "--set", "reader.http_addr=" + http, "--set", "admin.addr=" + r.admin[len("http://"):],
		"--set", "reader.state_dir=" + r.stateDir, "--set", "reader.max_wait=20s", "--set", "reader.write_timeout=1m"}, args...)...)
	return r
}

// ask sends a request and decodes its answer into a T, if its status is the one wanted.
func ask[T any](ctx context.Context, method, url string, body any, want int) (into T, err error) {
	sent, err := json.Marshal(body)
	if err != nil {
		return into, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(sent))
	if err != nil {
		return into, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return into, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err == nil && resp.StatusCode != want {
		err = fmt.Errorf("%s %s: status %d: %s", method, url, resp.StatusCode, text)
	}
	if err != nil {
		return into, err
	}
	return into, json.Unmarshal(text, &into)
}

// mustAsk is ask that may not fail.
func mustAsk[T any](t testing.TB, method, url string, body any, want int) T {
	t.Helper()
	into, err := ask[T](t.Context(), method, url, body, want)
	require.NoError(t, err)
	return into
}

func (r *reader) ready() bool {
	return answers(r.t, r.admin+"/readyz")
}

// answers tells whether a GET is a success.
func answers(t testing.TB, url string) bool {
	resp, err := http.DefaultClient.Get(url)
	if err != nil {
		return false
	}
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode == http.StatusOK
}

func (r *reader) start() {
	r.t.Helper()
	require.NoError(r.t, r.Start(r.t.Context()))
}

// counted are the counts that a reader has of posts, zeros left out, by no code but this.
func (r *reader) counted(posts []uint64) map[uint64]count {
	r.t.Helper()
	counts := map[uint64]count{}
	for part := range slices.Chunk(posts, 1000) {
		answer := mustAsk[struct {
			Posts []struct {
				PostID          uint64 `json:"post_id,string"`
				Likes, Dislikes int64
			}
		}](r.t, http.MethodPost, r.base+"/v1/likes:get", map[string]any{"post_ids": part}, http.StatusOK)
		for _, p := range answer.Posts {
			if c := (count{p.Likes, p.Dislikes}); c != (count{}) {
				counts[p.PostID] = c
			}
		}
	}
	return counts
}

// exactness is an oracle and what it needs for readers.
type exactness struct {
	*oracle.Oracle
	t testing.TB
}

func (s *system) exactness() *exactness {
	s.t.Helper()
	o, err := oracle.New(s.brokers)
	require.NoError(s.t, err)
	s.t.Cleanup(o.Close)
	return &exactness{o, s.t}
}

// wait waits until a reader is ready and has all that is in likes.
func (e *exactness) wait(r *reader) {
	e.t.Helper()
	left := ""
	defer func() {
		if left != "" {
			e.t.Log(r, "has not got", left)
		}
	}()
	waitFor(e.t, time.Minute, r.String()+" to have it all", func() bool {
		if !r.ready() {
			left = "ready"
			return false
		}
		var err error
		left, err = e.ReaderLeft(e.t.Context(), r.base)
		require.NoError(e.t, err)
		return left == ""
	})
}

// require compares what a reader says when it has it all.
func (e *exactness) require(r *reader, depth oracle.Depth) {
	e.t.Helper()
	e.wait(r)
	began := time.Now()
	v, err := e.Reader(e.t.Context(), r.base, depth)
	require.NoError(e.t, err)
	require.Zero(e.t, v.Differences.Total, "%s: %s", r, v.Differences.String())
	e.t.Logf("%s: %d answers, in %v", r, v.Answers, time.Since(began).Round(time.Millisecond))
}

// judge wants each answer to be the fold of just what it says to be as of, and the
// answers to be of so many different places at least.
func (e *exactness) judge(w *oracle.Watched, places int) {
	e.t.Helper()
	v, err := e.Judge(e.t.Context(), w)
	require.NoError(e.t, err)
	require.Zero(e.t, v.Differences.Total, v.Differences.String())
	e.t.Logf("%d answers as of %d places; away %d times, %d streams", v.Answers, v.Places, w.Away, w.Streams)
	require.Greater(e.t, v.Places, places)
}

// task is something that goes on beside the test.
type task[T any] struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	value  T // when done is closed
	err    error
}

// background starts a task, which ends with the test at the latest.
func background[T any](t testing.TB, run func(context.Context) (T, error)) *task[T] {
	ctx, cancel := context.WithCancel(t.Context())
	b := &task[T]{t: t, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.value, b.err = run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-b.done })
	return b
}

// wait returns what came of it.
func (b *task[T]) wait() T {
	b.t.Helper()
	select {
	case <-b.done:
	case <-time.After(2 * time.Minute):
		b.cancel() // and it says how far it was
		<-b.done
	}
	require.NoError(b.t, b.err)
	return b.value
}

// stop ends it first.
func (b *task[T]) stop() T {
	b.t.Helper()
	b.cancel()
	return b.wait()
}

// hot are the posts with the most events, and all users.
func hot(events []schema.Event, n int) (posts, users []uint64) {
	times, all := map[uint64]int{}, map[uint64]bool{}
	for _, e := range events {
		times[e.PostID]++
		all[e.UserID] = true
	}
	posts = slices.SortedFunc(maps.Keys(times), func(a, b uint64) int { return times[b] - times[a] })
	return posts[:n], slices.Sorted(maps.Keys(all))
}

// killReader kills a reader while the log is being folded, and starts it on what it left.
func (s *system) killReader(r *reader, kills int) {
	s.t.Helper()
	adm := kadm.NewClient(s.client())
	random := rand.New(rand.NewPCG(uint64(kills), 3))
	for kill := range kills {
		waitFor(s.t, time.Minute, "the reader to be ready", r.ready)
		before, _ := s.standing(adm)
		waitFor(s.t, time.Minute, "the committed position to move", func() bool { now, end := s.standing(adm); return now > before || now >= end })
		pause(s.t, time.Duration(random.IntN(200))*time.Millisecond)
		require.NoError(s.t, r.Kill())
		folded, end := s.standing(adm)
		s.t.Logf("kill %d of the reader: %d of %d folded", kill, folded, end)
		r.start()
	}
}

// importFile is a delivery by `kudos import`.
func importFile(s *system, events []schema.Event) {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "likes.csv")
	text := []byte("post_id,user_id,action,time_ms,region\n")
	for _, e := range events {
		text = fmt.Appendf(text, "%d,%d,%s,%d,%s\n", e.PostID, e.UserID, e.Action, e.TimeMs, e.Region)
	}
	require.NoError(s.t, os.WriteFile(path, text, 0o600))
	s.command("import", path, "--brokers", s.brokerList())
}

// What a reader says is the fold of the log, and what others have worked out from the
// ratings: while the events come and it is killed, when it has all of them, and after it
// was killed with its local store left, and without it while it was catching up.
func TestReadersAreExactWhenTheyAreKilled(t *testing.T) {
	for _, tt := range []struct {
		reading
		send func(*system, []schema.Event)
	}{
		{eachPerson, importFile},
		{changingMinds, shuffled.send},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newRealSystem(t)
			e := s.exactness()
			r := s.reader("reader")
			r.start()
			events := tt.events(t)
			posts, users := hot(events, 4)
			watched := background(t, func(ctx context.Context) (*oracle.Watched, error) { return e.Watch(ctx, r.base, posts, users) })
			tt.send(s, events)
			// Batches so small that the log lasts for all the kills; the rest goes faster.
			processor := s.processor("processor-0", "--set", "processor.max_batch=200")
			require.NoError(t, processor.Start(t.Context()))
			s.killReader(r, 3)
			require.NoError(t, processor.Kill())
			require.NoError(t, s.processor("processor-1", "--set", "processor.max_batch=1000").Start(t.Context()))
			s.drain(2 * time.Minute)
			e.wait(r)
			e.judge(watched.stop(), 20)
			want := tt.counts(t)
			all := slices.Collect(maps.Keys(want))
			requireSame(t, "after the events", want, r.counted(all))

			require.NoError(t, r.Kill())
			r.start()
			e.require(r, oracle.Sample)
			requireSame(t, "with the local store", want, r.counted(all))

			s.killCatchingUp(r, 3)
			e.require(r, oracle.Everything)
			requireSame(t, "without the local store", want, r.counted(all))

			counts := s.reader("reader-of-counts", "--set", "reader.reactions=false")
			counts.start()
			e.require(counts, oracle.CountsOnly)
			requireSame(t, "a reader of counts", want, counts.counted(all))
		})
	}
}

// killCatchingUp takes a reader's local store away and kills it while it makes another,
// time and again, each time on what there is of it.
func (s *system) killCatchingUp(r *reader, kills int) {
	s.t.Helper()
	random := rand.New(rand.NewPCG(uint64(kills), 4))
	require.NoError(s.t, r.Kill())
	require.NoError(s.t, os.RemoveAll(r.stateDir))
	for kill := range kills {
		r.start()
		waitFor(s.t, time.Minute, "a local store", func() bool {
			stores, err := filepath.Glob(filepath.Join(r.stateDir, "reactions-*", "*", "*"))
			require.NoError(s.t, err)
			return len(stores) == s.partitions
		})
		pause(s.t, time.Duration(random.IntN(100))*time.Millisecond)
		ready := r.ready()
		require.NoError(s.t, r.Kill())
		s.t.Logf("kill %d while catching up; ready: %t", kill, ready)
	}
	r.start()
}

// followed is a system with a producer and two readers, all the same to whoever asks.
type followed struct {
	*system
	*exactness
	producer, producerAdmin string
	processor               *stack.Server
	readers                 [2]*reader
}

func newFollowed(t *testing.T) *followed {
	f := &followed{system: newRealSystem(t)}
	f.exactness = f.system.exactness()
	at, admin := f.address(), f.address()
	f.producer, f.producerAdmin = "http://"+at, "http://"+admin
	f.processor = f.system.processor("processor", "--set", "processor.max_batch=100")
	producer := f.role("producer", "producer", f.system.t.TempDir(), "--set", "producer.http_addr="+at, "--set", "admin.addr="+admin)
	f.readers = [2]*reader{f.reader("reader-0"), f.reader("reader-1")}
	for _, p := range []*stack.Server{f.processor, producer, f.readers[0].Server, f.readers[1].Server} {
		require.NoError(t, p.Start(t.Context()))
	}
	waitFor(t, time.Minute, "the producer to answer", func() bool { return answers(t, f.producerAdmin+"/readyz") })
	for _, r := range f.readers {
		waitFor(t, time.Minute, "the readers to be ready", r.ready)
	}
	return f
}

// place is an event's, as the producer tells it; the reader's as_of is the next one.
type place struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

// like has a user like a post, through the producer.
func (f *followed) like(t testing.TB, post, user uint64) place {
	t.Helper()
	return mustAsk[place](t, http.MethodPut, fmt.Sprintf("%s/v1/posts/%d/likes/%d", f.producer, post, user), nil, http.StatusAccepted)
}

func TestReadersFollowTheLog(t *testing.T) {
	f := newFollowed(t)
	t.Run("own_likes", f.ownLikes)
	t.Run("a_reader_that_is_behind", f.behind)
	t.Run("streams_over_restarts", f.streams)
	for _, r := range f.readers {
		f.require(r, oracle.Everything)
	}
}

// likes is what a reader answers, of a post and of a user.
type likes struct {
	Likes    int64  `json:"likes"`
	Reaction string `json:"reaction"`
	AsOf     place  `json:"as_of"`
}

// ownLikes: whoever has the producer's answer reads their own like from any reader.
func (f *followed) ownLikes(t *testing.T) {
	const post = 1_000_001
	for i := range uint64(200) {
		at := f.like(t, post, 1+i)
		one, other := f.readers[i%2], f.readers[1-i%2]
		n := mustAsk[likes](t, http.MethodGet, fmt.Sprintf("%s/v1/posts/%d/likes?min_offset=%d", one.base, post, at.Offset), nil, http.StatusOK)
		require.Equal(t, likes{Likes: int64(i) + 1, AsOf: place{at.Partition, at.Offset + 1}}, n)
		r := mustAsk[likes](t, http.MethodGet, fmt.Sprintf("%s/v1/posts/%d/likes/%d?min_offset=%d", other.base, post, 1+i, at.Offset), nil, http.StatusOK)
		require.Equal(t, likes{Reaction: "LIKE", AsOf: place{at.Partition, at.Offset + 1}}, r)
	}
}

// behind: a reader that stood still has less than the other, and an answer that must
// cover what it lacks waits for it.
func (f *followed) behind(t *testing.T) {
	const post, events = 1_000_002, 20
	ahead, behind := f.readers[0], f.readers[1]
	require.NoError(t, behind.Pause())
	var last place
	for user := range uint64(events) {
		last = f.like(t, post, 1+user)
	}
	url := fmt.Sprintf("/v1/posts/%d/likes?min_offset=%d", post, last.Offset)
	want := likes{Likes: events, AsOf: place{last.Partition, last.Offset + 1}}
	require.Equal(t, want, mustAsk[likes](t, http.MethodGet, ahead.base+url, nil, http.StatusOK))
	late := background(t, func(ctx context.Context) (likes, error) {
		return ask[likes](ctx, http.MethodGet, behind.base+url, nil, http.StatusOK)
	})
	require.NoError(t, behind.Resume())
	require.Equal(t, want, late.wait())

	// Nobody folds: both wait, and have it as soon as somebody does.
	require.NoError(t, f.processor.Pause())
	at := f.like(t, post, events+1)
	var waiting []*task[likes]
	for _, r := range f.readers {
		require.Equal(t, int64(events), mustAsk[likes](t, http.MethodGet, fmt.Sprintf("%s/v1/posts/%d/likes", r.base, post), nil, http.StatusOK).Likes)
		waiting = append(waiting, background(t, func(ctx context.Context) (likes, error) {
			return ask[likes](ctx, http.MethodGet, fmt.Sprintf("%s/v1/posts/%d/likes?min_offset=%d", r.base, post, at.Offset), nil, http.StatusOK)
		}))
	}
	require.NoError(t, f.processor.Resume())
	for _, answer := range waiting {
		require.Equal(t, likes{Likes: events + 1, AsOf: place{at.Partition, at.Offset + 1}}, answer.wait())
	}
}

// streams: a stream that breaks off with its reader goes on at the other one from where
// it was, never goes back, and ends with what is there in the end.
func (f *followed) streams(t *testing.T) {
	posts := []uint64{1, 2, 3, 4, 5}
	var final atomic.Pointer[map[uint64]oracle.Count]
	stream := background(t, func(ctx context.Context) (*oracle.Watched, error) {
		return oracle.Follow(ctx, []string{f.readers[0].base, f.readers[1].base}, posts, func(newest map[uint64]oracle.Count) bool {
			want := final.Load()
			return want != nil && maps.Equal(*want, newest)
		})
	})
	f.toggles(11, 60_000)
	for kill := range 4 {
		// The one that the stream comes to is behind.
		r, other := f.readers[kill%2], f.readers[1-kill%2]
		require.NoError(t, other.Pause())
		f.killReader(r, 1)
		require.NoError(t, other.Resume())
		waitFor(t, time.Minute, "the reader to be ready again", r.ready)
	}
	require.NoError(t, f.processor.Kill())
	require.NoError(t, f.processor.Start(t.Context()))
	f.drain(time.Minute)

	// One more, with which the stream has everything.
	want, counted := map[uint64]oracle.Count{}, f.mysqlCounts()
	for _, post := range posts {
		want[post] = oracle.Count{Likes: counted[post].likes, Dislikes: counted[post].dislikes}
	}
	last := want[posts[0]]
	last.Likes++
	want[posts[0]] = last
	final.Store(&want)
	f.like(t, posts[0], 1_000_001)
	w := stream.wait()
	f.judge(w, 20)
	require.Greater(t, w.Streams, 2)
}
