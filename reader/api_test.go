package reader

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
	"kudos/sql"
)

// succeeds has a successful request for each operation.
var succeeds = map[string]string{
	"getLikes":           likesOf1 + "?min_offset=0",
	"getManyLikes":       "/v1/likes?post_ids=1,2&min_offset=0:1,1:2",
	"getManyLikesByBody": byBody,
	"getManyReactions":   reactionsByBody,
	"getPostHistory": "/v1/posts/1/history?region=DE&interval=day&from=2026-01-01T00:00:00Z" +
		"&to=2026-02-01T00:00:00Z",
	"listLikers": "/v1/posts/1/likers?page_size=10&min_offset=0&page_token=" +
		newPageToken(1, cursor{after: 7}),
	"getReaction":      "/v1/posts/1/likes/7?min_offset=0",
	"listRankings":     "/v1/trending",
	"getTrending":      "/v1/trending/DE?window=1h",
	"getLeaderboard":   "/v1/leaderboard?region=us-ca&period=day",
	"getLikesOverTime": overTime + "?region=DE&interval=day&from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z",
	"getStats":         "/v1/stats",
	"getHealth":        "/v1/health",
	"getDocument":      "/openapi.yaml",
}

// The document and the handlers have the same operations, and each of them works.
func TestDocumentIsWhatIsServed(t *testing.T) {
	r := withRankings(t)
	r.history, r.api.posts = hours(new(asked)), noHistory{}
	const elsewhere = "stream" // not part of api
	r.doc.RequireServed(t, r.routes(), elsewhere)
	for path, item := range r.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			id, body := operation.OperationID, ""
			if id == elsewhere {
				continue
			}
			if method == http.MethodPost {
				body = `{"post_ids":[1,"2"],"min_offset":[{"partition":1,"offset":2}]}`
			}
			if id == "getManyReactions" {
				body = `{"user_id":7,"post_ids":[1,"2"]}`
			}
			require.Contains(t, succeeds, id, "add a request that succeeds")
			r.ask(method, succeeds[id], body, "Content-Type", "application/json").Require(200)
			r.requireCount(1, path, strings.ToLower(method), "200")
		}
	}
}

func (r *rig) requireCount(n int, route, method, code string) {
	r.T.Helper()
	labels := []string{"route", route, "method", method, "code", code}
	require.EqualValues(r.T, n, r.Metric("kudos_reader_requests_total", labels...), labels)
}

func TestServesTheDocument(t *testing.T) {
	r := newRig(t, nil, nil)
	a := r.get("/openapi.yaml").RequireHeader("Content-Type", "application/yaml")
	require.Equal(t, document, a.Body)
	r.get("/openapi.yaml", "If-None-Match", a.Header.Get("ETag")).Require(http.StatusNotModified)
}

func TestNotFoundAndNotAllowed(t *testing.T) {
	r := newRig(t, nil, nil)
	for _, path := range []string{"/v1", "/v1/posts/7", "/v1/posts/7/likes/9/x", "/v1/posts/7/likes/", "/v1/likes:all",
		"/v2/posts/7/likes"} {
		r.get(path).RequireJSON(http.StatusNotFound, apikit.Problem(404, "not-found", "Not found",
			fmt.Sprintf("no route has the path %q", path)))
	}
	for path, methods := range r.routes() {
		allow := "GET, HEAD"
		if methods[http.MethodPost] != nil {
			allow = "POST"
		}
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			if methods != nil && !strings.Contains(allow, method) {
				r.ask(method, path, "").RequireHeader("Allow", allow).RequireJSON(http.StatusMethodNotAllowed,
					apikit.Problem(405, "method-not-allowed", "Method not allowed",
						fmt.Sprintf("%s is not allowed; allowed: %s", method, allow)))
			}
		}
	}
}

// HEAD is answered like GET, without the body.
func TestHead(t *testing.T) {
	server := httptest.NewServer(newRig(t, nil, nil).api)
	defer server.Close()
	for _, target := range []string{
		likesOf1, "/v1/likes?post_ids=1" + strings.Repeat(",2", 200), "/v1/stats", "/openapi.yaml", "/v1/posts/x/likes",
	} {
		get := apikit.MustSend(t, server.Client(), http.MethodGet, server.URL+target, "")
		head, err := server.Client().Head(server.URL + target)
		require.NoError(t, err)
		require.NoError(t, head.Body.Close())
		require.Equal(t, get.Status, head.StatusCode)
		require.EqualValues(t, len(get.Body), head.ContentLength, target)
		for name := range get.Header {
			if name != "Date" {
				get.RequireHeader(name, head.Header.Get(name))
			}
		}
	}
}

func TestTooManyRequests(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	slow := func(context.Context, schema.Region, time.Time, time.Time) ([]sql.HourLikes, error) {
		close(begun)
		<-end
		return nil, nil
	}
	r := newRig(t, func(o *Options) { o.MaxConcurrentRequests = 1 }, slow)
	done := testkit.Later(func() apikit.Answer { return r.get(overTime) })
	testkit.Receive(t, begun, "the first request must be in flight")
	const limit = "reader.max_concurrent_requests"
	r.get("/v1/posts/2/likes").RequireProblem(http.StatusTooManyRequests, "too-many-requests", limit)
	r.post(byBody, `{"post_ids":[2]}`).RequireProblem(http.StatusTooManyRequests, "too-many-requests", limit)
	close(end)
	testkit.Receive(t, done, "the first request must be answered").Require(200)
	r.get("/v1/posts/2/likes").Require(200) // the slot is free again
}

func TestOrigins(t *testing.T) {
	const page, allow, methods = "https://www.example.com", "Access-Control-Allow-Origin", "Access-Control-Allow-Methods"
	r := newRig(t, func(o *Options) { o.Origins = []string{page} }, nil)
	a := r.get(likesOf1, "Origin", page).RequireHeader(allow, page)
	require.ElementsMatch(t, []string{"Etag", "Kudos-As-Of", "Retry-After"},
		strings.Split(a.Header.Get("Access-Control-Expose-Headers"), ", "))
	require.Contains(t, a.Header.Values("Vary"), "Origin")
	r.get("/v1/posts/x/likes", "Origin", page).RequireHeader(allow, page) // the page can read what is wrong
	r.get(likesOf1, "Origin", "https://www.example.org").RequireHeader(allow, "")

	preflight := func(method string) apikit.Answer {
		return r.ask(http.MethodOptions, byBody, "", "Origin", page, "Access-Control-Request-Method", method,
			"Access-Control-Request-Headers", "content-type,if-none-match")
	}
	for _, method := range []string{"GET", "HEAD", "POST"} {
		preflight(method).Require(http.StatusNoContent).RequireHeader(methods, method)
	}
	preflight("DELETE").RequireHeader(methods, "")

	o := DefaultOptions()
	o.Origins = []string{page, "www.example.com"}
	require.ErrorContains(t, o.Validate(), `reader.origins: "www.example.com" is not an origin`)
	newRig(t, nil, nil).get(likesOf1, "Origin", page).RequireHeader(allow, "")
}

func TestStats(t *testing.T) {
	r := newRig(t, nil, nil)
	r.get("/v1/stats").RequireHeader("Cache-Control", "no-cache").RequireJSON(200,
		`{"posts":3,"likes":5,"dislikes":1,"events":100,"events_behind":-1,"lag_ms":-1,"partitions":[
		{"as_of":{"partition":0,"offset":10},"ready":true},{"as_of":{"partition":1,"offset":20},"ready":true},
		{"as_of":{"partition":2,"offset":30},"ready":true},{"as_of":{"partition":3,"offset":40},"ready":true}],
		"reactions":[
		{"as_of":{"partition":0,"offset":10},"ready":true},{"as_of":{"partition":1,"offset":20},"ready":true},
		{"as_of":{"partition":2,"offset":30},"ready":true},{"as_of":{"partition":3,"offset":40},"ready":true}],
		"transactions":[]}`)

	r.likes.mu.hiding = []wire.OpenTransaction{{Topic: "likes", Position: wire.Position{Partition: 1, Offset: 20},
		End: 22, OpenMs: 61_000}}
	r.likes.mu.lag, r.likes.mu.lagKnown = 1500*time.Millisecond, true
	r.likes.mu.notReady[2] = &view.NotReadyError{Topic: "t", Partition: 2, Behind: 5}
	r.get("/v1/stats").RequireJSON(200,
		`{"posts":3,"likes":5,"dislikes":1,"events":70,"events_behind":12,"lag_ms":1500,"partitions":[
		{"as_of":{"partition":0,"offset":10},"ready":true},{"as_of":{"partition":1,"offset":20},"ready":true},
		{"as_of":{"partition":2,"offset":0},"ready":false},{"as_of":{"partition":3,"offset":40},"ready":true}],
		"reactions":[
		{"as_of":{"partition":0,"offset":10},"ready":true},{"as_of":{"partition":1,"offset":20},"ready":true},
		{"as_of":{"partition":2,"offset":0},"ready":false},{"as_of":{"partition":3,"offset":40},"ready":true}],
		"transactions":[{"topic":"likes","partition":1,"offset":20,"high_watermark":22,"open_ms":61000}]}`)
	r.likes.mu.notReady[2] = io.ErrUnexpectedEOF
	r.get("/v1/stats").RequireProblem(http.StatusInternalServerError, "internal", "")
}

func TestMetrics(t *testing.T) {
	r := newRig(t, nil, nil)
	r.get(likesOf1)
	r.get("/v1/posts/2/likes")
	r.get("/v1/posts/x/likes")
	r.ask("BREW", "/v1/nothing", "")
	const route = "/v1/posts/{post_id}/likes"
	r.requireCount(2, route, "get", "200")
	r.requireCount(1, route, "get", "400")
	r.requireCount(1, "other", "unknown", "404")
	require.EqualValues(t, 3, r.Metric("kudos_reader_request_seconds", "route", route))

	_, err := newAPI(DefaultOptions(), r.lanes, r.rankings, nil, r.log, r.Metrics)
	require.ErrorAs(t, err, new(prometheus.AlreadyRegisteredError))
}

// noHistory has the history of no post.
type noHistory struct{}

func (noHistory) Of(uint64, schema.Region, time.Time, time.Time) ([]view.HourCounts, time.Time, error) {
	return nil, time.Time{}, nil
}

// FuzzAPI checks that every response is as documented.
func FuzzAPI(f *testing.F) {
	shared := newRig(f, func(o *Options) { o.MaxWait = 0 }, hours(new(asked)))
	f.Add("GET", likesOf1, "min_offset=7", "")
	f.Add("GET", "/v1/likes", "post_ids=1,2&post_ids=%33&min_offset=0:1,3:2", "")
	f.Add("POST", byBody, "", `{"post_ids":[1,"2", 3 ],"min_offset":[{"partition":1,"offset":2}]}`)
	f.Add("GET", "/v1/posts/1/likers", "page_size=2&page_token="+newPageToken(1, cursor{after: 7}), "")
	f.Add("GET", "/v1/trending/us-ca", "window=24h", "")
	f.Add("GET", overTime, "interval=day&from=2026-01-01T00:00:00%2B02:00&to=2026-02-01T00:00:00.5Z", "")
	f.Add("BREW", "/../v1//posts", "%zz&=&;", "{")
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		shared.T = t
		u := &url.URL{Path: path, RawQuery: query}
		if strings.ContainsAny(query, " #\r\n\x00") ||
			!slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "BREW"}, method) {
			return // no such request can arrive
		}
		req, err := http.NewRequest(method, "http://kudos", strings.NewReader(body))
		require.NoError(t, err)
		req.URL.Path, req.URL.RawQuery, req.RequestURI = u.Path, u.RawQuery, u.RequestURI()
		req.Header.Set("Content-Type", "application/json")
		a := apikit.Ask(t, shared.api, req)
		switch {
		case a.Status >= 500:
			a.RequireProblem(503, "not-covered", "")
		case a.Status >= 400:
			shared.holdProblem(a)
		case a.Status >= 300:
			require.Contains(t, []int{301, 307, 308}, a.Status, "a path is cleaned: %q", path)
		default:
			shared.hold(method, u.RequestURI(), body, req.Header, a)
		}
	})
}

// FuzzPageToken checks that invalid tokens are rejected, and that valid ones contain what they were made of.
func FuzzPageToken(f *testing.F) {
	f.Add(newPageToken(1, cursor{after: 7}), uint64(1))
	last := cursor{1<<64 - 1, wire.Position{Partition: 1<<31 - 1, Offset: 1<<63 - 1}}
	f.Add(newPageToken(1<<64-1, last), uint64(1<<64-1))
	f.Add("", uint64(0))
	f.Add(newPageToken(1, cursor{after: 7})[:9]+"\n"+newPageToken(1, cursor{after: 7})[9:], uint64(1))
	f.Fuzz(func(t *testing.T, token string, post uint64) {
		after, wrong := parsePageToken(token, post)
		if wrong == "" {
			require.Equal(t, newPageToken(post, after), token)
		}
		again, wrong := parsePageToken(newPageToken(post, after), post)
		require.Empty(t, wrong)
		require.Equal(t, after, again)
	})
}
