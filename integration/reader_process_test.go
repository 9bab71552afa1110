package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/oracle"
)

func (r *reader) requests() float64 { return r.sum("kudos_reader_requests_total", nil) }

// ask sends a request and decodes the response into a T, if its status is the expected one.
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

func mustAsk[T any](t testing.TB, method, url string, body any, want int) T {
	into, err := ask[T](t.Context(), method, url, body, want)
	require.NoError(t, err)
	return into
}

// get sends a GET that must succeed.
func get[T any](t testing.TB, format string, args ...any) T {
	return mustAsk[T](t, http.MethodGet, fmt.Sprintf(format, args...), nil, http.StatusOK)
}

// putLike makes a user like a post through a producer (http://host:port).
func putLike(t testing.TB, producer string, post, user uint64) place {
	return mustAsk[place](t, http.MethodPut, fmt.Sprintf("%s/v1/posts/%d/likes/%d", producer, post, user), nil,
		http.StatusAccepted)
}

// counted reads the counts of posts from a reader, zeros left out, independently of the program's code.
func (r *reader) counted(posts []uint64) map[uint64]count {
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

func (r *reader) waitCounts(want map[uint64]count) {
	posts := slices.Sorted(maps.Keys(want))
	waitSame(r.t, "the counts of "+r.String(), want, func() map[uint64]count {
		if !r.ready() {
			return nil
		}
		return r.counted(posts)
	})
}

// exactness is an oracle with helpers for readers.
type exactness struct {
	*oracle.Oracle
	t testing.TB
}

// bounded returns a context for one full check.
func (e *exactness) bounded() context.Context { return testkit.Within(e.t, 3*time.Minute) }

func (s *system) exactness() *exactness {
	o, err := oracle.New(s.brokers)
	require.NoError(s.t, err)
	s.t.Cleanup(o.Close)
	return &exactness{o, s.t}
}

func (e *exactness) wait(r *reader) {
	waitSaid(e.t, time.Minute, r.String()+" to be up to date", func() (bool, any) {
		if !r.ready() {
			return false, "not ready"
		}
		left, err := e.ReaderLeft(e.bounded(), r.base)
		require.NoError(e.t, err)
		return left == "", left
	})
}

// require compares what a reader says once it has read everything.
func (e *exactness) require(r *reader, depth oracle.Depth) {
	e.wait(r)
	began := time.Now()
	v, err := e.Reader(e.bounded(), r.base, depth)
	require.NoError(e.t, err)
	require.Zero(e.t, v.Differences.Total, "%s: %s", r, v.Differences.String())
	e.t.Logf("%s: %d responses checked in %v", r, v.Answers, time.Since(began).Round(time.Millisecond))
}

// checkWatched requires each response to be the fold up to exactly its as_of, with at least places distinct positions.
func (e *exactness) checkWatched(w *oracle.Watched, places int) {
	v, err := e.CheckWatched(e.bounded(), w)
	require.NoError(e.t, err)
	require.Zero(e.t, v.Differences.Total, v.Differences.String())
	e.t.Logf("%d responses at %d offsets, %d outages, %d streams", v.Answers, v.Places, w.Unavailable, w.Streams)
	require.Greater(e.t, v.Places, places)
}

type task[T any] struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	value  T // valid once done is closed
	err    error
}

// background starts a task, which ends with the test at the latest.
func background[T any](t testing.TB, run func(context.Context) (T, error)) *task[T] {
	ctx, cancel := context.WithCancel(t.Context())
	b := &task[T]{t: t, cancel: cancel, done: make(chan struct{})}
	go func() { defer close(b.done); b.value, b.err = run(ctx) }()
	t.Cleanup(func() { cancel(); <-b.done })
	return b
}

func (b *task[T]) wait() T {
	select {
	case <-b.done:
	case <-time.After(2 * time.Minute):
		b.cancel() // its error says how far it got
		<-b.done
	}
	require.NoError(b.t, b.err)
	return b.value
}

func (b *task[T]) running() bool {
	select {
	case <-b.done:
		return false
	default:
		return true
	}
}

func (b *task[T]) stop() T { b.cancel(); return b.wait() }
