package kudos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// reply is what a server does with one request; it closes the connection if there is no status.
type reply struct {
	status int
	body   string
}

// serve answers requests with replies, one after the other. The returned function returns the requests.
func serve(t *testing.T, replies ...reply) (*Client, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		n := len(got)
		got = append(got, strings.TrimSpace(r.Method+" "+r.URL.String()+" "+r.Header.Get("Last-Event-ID")+string(body)))
		mu.Unlock()
		if n >= len(replies) {
			t.Errorf("unexpected: %s %s", r.Method, r.URL)
			w.WriteHeader(http.StatusTeapot)
			return
		}
		if r.Header.Get("Authorization") != "Bearer t" {
			t.Error("the client's header is missing")
		}
		a := replies[n]
		switch a.status {
		case 0:
			panic(http.ErrAbortHandler)
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	}))
	t.Cleanup(server.Close)
	c := &Client{ProducerURL: server.URL, ReaderURL: server.URL, Header: http.Header{"Authorization": {"Bearer t"}}}
	return c, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(got)
	}
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func problem(status int, slug string) reply {
	const body = `{"type":"urn:kudos:problem:%s","title":"T","status":%d,"detail":"D"}`
	return reply{status, fmt.Sprintf(body, slug, status)}
}

func TestReactRetriesWithTheSameTime(t *testing.T) {
	c, requests := serve(t, reply{}, problem(503, "not-running"), reply{502, "<html>"}, reply{202, `{"partition":3,`},
		reply{202, `{"partition":3,"offset":1018}`})
	began := time.Now()
	at, err := c.Like(t.Context(), 42, 7)
	equal(t, err, nil)
	equal(t, at, Position{3, 1018})
	got := requests()
	equal(t, len(got), 5)
	equal(t, len(slices.Compact(got)), 1)
	var ms int64
	if _, err := fmt.Sscanf(got[0], "PUT /v1/posts/42/likes/7?time_ms=%d", &ms); err != nil ||
		ms < began.UnixMilli() || ms > time.Now().UnixMilli() {
		t.Error(got[0], err)
	}
	if took := time.Since(began); took < time.Second {
		t.Errorf("did not wait as Retry-After says: %s", took)
	}
}

func TestEachActionHasItsRequest(t *testing.T) {
	ok := reply{202, `{"partition":0,"offset":-1}`}
	c, requests := serve(t, ok, ok, ok)
	at, err := c.React(t.Context(), Event{1<<64 - 1, 1<<53 + 1, Dislike, time.UnixMilli(5), "US-CA"})
	equal(t, err, nil)
	equal(t, at, Position{0, -1})
	_, err = c.Dislike(t.Context(), 1, 2)
	equal(t, err, nil)
	_, err = c.Unlike(t.Context(), 1, 2)
	equal(t, err, nil)
	got := requests()
	equal(t, got[0], "PUT /v1/posts/18446744073709551615/dislikes/9007199254740993?region=US-CA&time_ms=5")
	equal(t, strings.HasPrefix(got[1], "PUT /v1/posts/1/dislikes/2?time_ms="), true)
	equal(t, strings.HasPrefix(got[2], "DELETE /v1/posts/1/likes/2?time_ms="), true)
}

func TestProblemsAreNotRetried(t *testing.T) {
	c, _ := serve(t, problem(400, "invalid-request"), reply{404, "no such page"})
	_, err := c.Like(t.Context(), 42, 7)
	p, ok := errors.AsType[*Problem](err)
	equal(t, ok, true)
	equal(t, *p, Problem{"urn:kudos:problem:invalid-request", "T", 400, "D"})
	equal(t, strings.HasSuffix(err.Error(), ": 400 T: D"), true)
	_, err = c.Like(t.Context(), 42, 7)
	p, ok = errors.AsType[*Problem](err)
	equal(t, ok, true)
	equal(t, *p, Problem{"", "404 Not Found", 404, `"no such page"`})
}

// TestNoRetryBeyondTheDeadline: the problem is of more use than a wait that cannot succeed.
func TestNoRetryBeyondTheDeadline(t *testing.T) {
	c, _ := serve(t, problem(429, "rate-limited"))
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := c.Like(ctx, 42, 7)
	p, ok := errors.AsType[*Problem](err)
	equal(t, ok, true)
	equal(t, p.Status, 429)
	equal(t, ctx.Err(), nil)

	c.ProducerURL = "http://127.0.0.1:1"
	_, err = c.Like(ctx, 42, 7)
	equal(t, strings.Contains(err.Error(), "connection refused"), true)
	c.ProducerURL = "likes"
	_, err = c.Like(ctx, 42, 7)
	equal(t, strings.Contains(err.Error(), "unsupported protocol"), true)
}

func TestReads(t *testing.T) {
	counts := `{"post_id":"42","likes":3,"dislikes":1,"as_of":{"partition":3,"offset":1019}}`
	many := `{"posts":[{"post_id":"42","likes":3,"dislikes":1}],"as_of":[]}`
	c, requests := serve(t, reply{200, counts}, reply{200, counts}, reply{200, many}, reply{200, many},
		reply{200, `{"user_id":"7","reactions":[{"post_id":"42","reaction":"LIKE","since":"S","region":"DE"}]}`})
	one := Counts{42, 3, 1, Position{3, 1019}}
	got, err := c.Count(t.Context(), 42, Position{3, -1})
	equal(t, err, nil)
	equal(t, got, one)
	_, err = c.Count(t.Context(), 42, Position{3, 1018}, Position{3, -1})
	equal(t, err, nil)
	got, err = c.Count(t.Context(), 42, Position{3, 1018}, Position{4, 5})
	equal(t, err, nil)
	equal(t, got, Counts{PostID: 42, Likes: 3, Dislikes: 1})
	all, err := c.Counts(t.Context(), []uint64{42})
	equal(t, err, nil)
	equal(t, all, []Counts{{PostID: 42, Likes: 3, Dislikes: 1}})
	r, err := c.Reaction(t.Context(), 42, 7, Position{3, 1018})
	equal(t, err, nil)
	equal(t, r, Reaction{42, Like, "S", "DE"})
	equal(t, requests(), []string{"GET /v1/posts/42/likes", "GET /v1/posts/42/likes?min_offset=3:1018",
		`POST /v1/likes:get {"min_offset":[{"partition":3,"offset":1018},{"partition":4,"offset":5}],` +
			`"post_ids":["42"]}`,
		`POST /v1/likes:get {"min_offset":[],"post_ids":["42"]}`,
		`POST /v1/reactions:get {"min_offset":[{"partition":3,"offset":1018}],"post_ids":["42"],"user_id":"7"}`})
}

func event(id, likes int) string {
	return fmt.Sprintf("id: e.3:%d\nevent: likes\ndata: {\"post_id\":\"42\",\ndata: \"likes\":%d}\n\n", id, likes)
}

func TestStreamResumes(t *testing.T) {
	c, requests := serve(t, reply{200, "retry: 10\r\n\r\n:\n\n" + event(1, 3) + event(2, 4)[:20]}, reply{},
		problem(503, "not-running"), reply{200, "event: reaction\ndata: {}\n\n" + event(2, 4) + event(3, 5)})
	var likes []int64
	for counts, err := range c.Stream(t.Context(), 42, 43) {
		equal(t, err, nil)
		if likes = append(likes, counts.Likes); len(likes) == 3 {
			break
		}
	}
	equal(t, likes, []int64{3, 4, 5})
	first := "GET /v1/stream?post_ids=42,43"
	equal(t, requests(), []string{first, first + " e.3:1", first + " e.3:1", first + " e.3:1"})
}

func TestStreamEndsWithAnError(t *testing.T) {
	c, _ := serve(t, problem(400, "invalid-request"), reply{200, strings.ReplaceAll(event(1, 3), "3}", "x}")})
	for _, says := range []string{"400 T: D", "invalid character 'x'"} {
		var errs []error
		for _, err := range c.Stream(t.Context(), 42) {
			errs = append(errs, err)
		}
		equal(t, len(errs), 1)
		equal(t, strings.Contains(errs[0].Error(), says), true)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range c.Stream(ctx, 42) {
		equal(t, errors.Is(err, context.Canceled), true)
	}
}
