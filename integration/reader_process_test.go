package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/oracle"
	"kudos/integration/stack"
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

// role makes a process that is asked over HTTP.
func (s *system) role(name, role, dir string, args ...string) *stack.Server {
	return s.process(name, dir, append([]string{role, "--brokers", s.brokerList()}, args...)...)
}

// process makes a process of the program, which is stopped at the end of the test.
func (s *system) process(name, dir string, args ...string) *stack.Server {
	p := stack.NewProgram(stack.ProgramOptions{Name: name, Path: s.program, Dir: dir, Log: s.log, Args: args})
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
	r.Server = s.role(name, "reader", dir, append([]string{"--set", s.mysql(), "--set", "reader.http_addr=" + http, "--set", "admin.addr=" + r.admin[len("http://"):],
		"--set", "reader.state_dir=" + r.stateDir, "--set", "reader.max_wait=20s", "--set", "reader.write_timeout=1m"}, args...)...)
	return r
}

// requests is how many it has answered.
func (r *reader) requests() (n float64) {
	for _, m := range scrape(r.t, strings.TrimPrefix(r.admin, "http://"))["kudos_reader_requests_total"].GetMetric() {
		n += m.GetCounter().GetValue()
	}
	return n
}

// ask sends a request and decodes its answer into a T, if its status is the one wanted.
func ask[T any](ctx context.Context, method, url string, body any, want int) (into T, err error) {
	var sent []byte
	if body != nil {
		if sent, err = json.Marshal(body); err != nil {
			return into, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(sent))
	if err != nil {
		return into, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
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
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(url)
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

// bounded is for one look at everything.
func (e *exactness) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.t.Context(), 3*time.Minute)
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
		ctx, cancel := e.bounded()
		defer cancel()
		var err error
		left, err = e.ReaderLeft(ctx, r.base)
		require.NoError(e.t, err)
		return left == ""
	})
}

// require compares what a reader says when it has it all.
func (e *exactness) require(r *reader, depth oracle.Depth) {
	e.t.Helper()
	e.wait(r)
	began := time.Now()
	ctx, cancel := e.bounded()
	defer cancel()
	v, err := e.Reader(ctx, r.base, depth)
	require.NoError(e.t, err)
	require.Zero(e.t, v.Differences.Total, "%s: %s", r, v.Differences.String())
	e.t.Logf("%s: %d answers, in %v", r, v.Answers, time.Since(began).Round(time.Millisecond))
}

// judge wants each answer to be the fold of just what it says to be as of, and the
// answers to be of so many different places at least.
func (e *exactness) judge(w *oracle.Watched, places int) {
	e.t.Helper()
	ctx, cancel := e.bounded()
	defer cancel()
	v, err := e.Judge(ctx, w)
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
