package reader

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"kudos/reader/view"
	"kudos/schema"
	"kudos/sql"
)

// succeeds is a request for each operation that is answered with a success.
var succeeds = map[string]func(r *rig) answered{
	"getLikes":     func(r *rig) answered { return r.get("/v1/posts/1/likes?min_offset=0") },
	"getManyLikes": func(r *rig) answered { return r.get("/v1/likes?post_ids=1,2&min_offset=0:1,1:2") },
	"getManyLikesByBody": func(r *rig) answered {
		return r.post("/v1/likes:get", `{"post_ids":[1,"2"],"min_offset":[{"partition":1,"offset":2}]}`)
	},
	"listLikers": func(r *rig) answered {
		return r.get("/v1/posts/1/likers?page_size=10&min_offset=0&page_token=" + newPageToken(1, 7))
	},
	"getReaction":    func(r *rig) answered { return r.get("/v1/posts/1/likes/7?min_offset=0") },
	"listRankings":   func(r *rig) answered { return r.get("/v1/trending") },
	"getTrending":    func(r *rig) answered { return r.get("/v1/trending/DE?window=1h") },
	"getLeaderboard": func(r *rig) answered { return r.get("/v1/leaderboard?region=us-ca&period=day") },
	"getLikesOverTime": func(r *rig) answered {
		return r.get("/v1/analytics/likes?region=DE&interval=day&from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z")
	},
	"getStats":    func(r *rig) answered { return r.get("/v1/stats") },
	"getDocument": func(r *rig) answered { return r.get("/openapi.yaml") },
}

// elsewhere are operations of the document that are not the API's.
var elsewhere = []string{"stream"}

// The document and the handlers have the same operations, and each of them works.
func TestDocumentIsWhatIsServed(t *testing.T) {
	r := withRankings(t)
	r.history = noHours(new(asked))
	require.NoError(t, r.doc.Validate(t.Context()))
	routes := r.routes()
	for path, item := range r.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			t.Run(operation.OperationID, func(t *testing.T) {
				for _, id := range elsewhere {
					if id == operation.OperationID {
						require.NotContains(t, routes, path)
						return
					}
				}
				require.Contains(t, routes, path)
				require.Contains(t, routes[path], method)
				require.Contains(t, succeeds, operation.OperationID, "add a request that succeeds")
				require.Equal(t, http.StatusOK, succeeds[operation.OperationID](r).status)
				require.EqualValues(t, 1, r.metric("kudos_reader_requests_total", "route", path, "method", strings.ToLower(method), "code", "200"))
			})
		}
	}
	for path, methods := range routes {
		for method := range methods {
			item := r.doc.Paths.Value(path)
			require.NotNil(t, item, "openapi.yaml lacks %s", path)
			require.NotNil(t, item.GetOperation(method), "openapi.yaml lacks %s %s", method, path)
		}
	}
}

func TestServesTheDocument(t *testing.T) {
	r := newRig(t, nil, nil)
	a := r.get("/openapi.yaml")
	require.Equal(t, document, a.body)
	require.Equal(t, "application/yaml", a.header.Get("Content-Type"))
	require.Equal(t, http.StatusNotModified, r.get("/openapi.yaml", "If-None-Match", a.header.Get("ETag")).status)
	r.get("/openapi.yaml?x=1").requireInvalid("x", "unknown_field", "is not known here; none is")
}

func TestNotFound(t *testing.T) {
	r := newRig(t, nil, nil)
	for _, path := range []string{"/v1", "/v1/posts/7", "/v1/posts/7/likes/9/x", "/v1/posts/7/likes/", "/v1/likes:all", "/v2/posts/7/likes"} {
		require.Equal(t, fmt.Sprintf("no route has the path %q", path), r.get(path).requireProblem(http.StatusNotFound, "not-found"))
	}
}

func TestMethodNotAllowed(t *testing.T) {
	r := newRig(t, nil, nil)
	for path, methods := range r.routes() {
		if methods == nil {
			continue
		}
		allow := "GET, HEAD"
		if methods[http.MethodPost] != nil {
			allow = "POST"
		}
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			if strings.Contains(allow, method) {
				continue
			}
			a := r.ask(method, path, "")
			require.Equal(t, fmt.Sprintf("%s is not allowed here; %s is", method, allow), a.requireProblem(http.StatusMethodNotAllowed, "method-not-allowed"))
			require.Equal(t, allow, a.header.Get("Allow"))
		}
	}
}

// HEAD is answered as GET is, without the body.
func TestHead(t *testing.T) {
	r := newRig(t, nil, nil)
	server := httptest.NewServer(r)
	defer server.Close()
	for _, target := range []string{"/v1/posts/1/likes", "/v1/likes?post_ids=1" + strings.Repeat(",2", 200), "/v1/stats", "/openapi.yaml", "/v1/posts/x/likes"} {
		get, err := server.Client().Get(server.URL + target)
		require.NoError(t, err)
		body, err := io.ReadAll(get.Body)
		require.NoError(t, err)
		require.NoError(t, get.Body.Close())
		head, err := server.Client().Head(server.URL + target)
		require.NoError(t, err)
		require.NoError(t, head.Body.Close())
		require.Equal(t, get.StatusCode, head.StatusCode)
		require.EqualValues(t, len(body), head.ContentLength, target)
		for name := range get.Header {
			if name != "Date" {
				require.Equal(t, get.Header.Get(name), head.Header.Get(name), name)
			}
		}
	}
}

func TestTooManyRequests(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	slow := fakeHistory(func(context.Context, schema.Region, time.Time, time.Time) ([]sql.HourLikes, error) {
		close(begun)
		<-end
		return nil, nil
	})
	r := newRig(t, func(o *Options) { o.MaxConcurrentRequests = 1 }, slow)
	done := make(chan answered, 1)
	go func() { done <- r.get("/v1/analytics/likes") }()
	receive(t, begun, "the first request must be in flight")
	a := r.get("/v1/posts/2/likes")
	require.Contains(t, a.requireProblem(http.StatusTooManyRequests, "too-many-requests"), "reader.max_concurrent_requests")
	require.Equal(t, "1", a.header.Get("Retry-After"))
	a = r.post("/v1/likes:get", `{"post_ids":[2]}`)
	require.Contains(t, a.requireProblem(http.StatusTooManyRequests, "too-many-requests"), "reader.max_concurrent_requests")
	close(end)
	require.Equal(t, http.StatusOK, receive(t, done, "the first request must be answered").status)
	require.Equal(t, http.StatusOK, r.get("/v1/posts/2/likes").status, "the place is free again")
}

func TestOrigins(t *testing.T) {
	const page = "https://www.example.com"
	r := newRig(t, func(o *Options) { o.Origins = []string{page} }, nil)
	a := r.get("/v1/posts/1/likes", "Origin", page)
	require.Equal(t, page, a.header.Get("Access-Control-Allow-Origin"))
	require.ElementsMatch(t, []string{"Etag", "Kudos-As-Of", "Retry-After"}, strings.Split(a.header.Get("Access-Control-Expose-Headers"), ", "))
	require.Contains(t, a.header.Values("Vary"), "Origin")
	require.Equal(t, page, r.get("/v1/posts/x/likes", "Origin", page).header.Get("Access-Control-Allow-Origin"), "the page can read what is wrong")
	require.Empty(t, r.get("/v1/posts/1/likes", "Origin", "https://www.example.org").header.Get("Access-Control-Allow-Origin"))

	for _, method := range []string{"GET", "HEAD", "POST"} {
		a = r.ask(http.MethodOptions, "/v1/likes:get", "", "Origin", page,
			"Access-Control-Request-Method", method, "Access-Control-Request-Headers", "content-type,if-none-match")
		require.Equal(t, http.StatusNoContent, a.status)
		require.Equal(t, method, a.header.Get("Access-Control-Allow-Methods"))
	}
	a = r.ask(http.MethodOptions, "/v1/likes:get", "", "Origin", page, "Access-Control-Request-Method", "DELETE")
	require.Empty(t, a.header.Get("Access-Control-Allow-Methods"))

	o := DefaultOptions()
	o.Origins = []string{page, "www.example.com"}
	require.ErrorContains(t, o.Validate(), `reader.origins: "www.example.com" is not an origin`)

	r = newRig(t, nil, nil)
	require.Empty(t, r.get("/v1/posts/1/likes", "Origin", page).header.Get("Access-Control-Allow-Origin"))
}

func TestStats(t *testing.T) {
	r := newRig(t, nil, nil)
	a := r.get("/v1/stats").requireJSON(http.StatusOK, `{"posts":3,"likes":5,"dislikes":1,"events":100,"events_behind":-1,"lag_ms":-1,"partitions":[
		{"as_of":{"partition":0,"offset":10},"ready":true},{"as_of":{"partition":1,"offset":20},"ready":true},
		{"as_of":{"partition":2,"offset":30},"ready":true},{"as_of":{"partition":3,"offset":40},"ready":true}]}`)
	require.Equal(t, "no-cache", a.header.Get("Cache-Control"))

	r.likes.mu.lag, r.likes.mu.lagKnown = 1500*time.Millisecond, true
	r.likes.mu.notReady[2] = &view.NotReadyError{Topic: "t", Partition: 2, Behind: 5}
	r.get("/v1/stats").requireJSON(http.StatusOK, `{"posts":3,"likes":5,"dislikes":1,"events":70,"events_behind":12,"lag_ms":1500,"partitions":[
		{"as_of":{"partition":0,"offset":10},"ready":true},{"as_of":{"partition":1,"offset":20},"ready":true},
		{"as_of":{"partition":2,"offset":0},"ready":false},{"as_of":{"partition":3,"offset":40},"ready":true}]}`)
	r.likes.mu.notReady[2] = io.ErrUnexpectedEOF
	r.get("/v1/stats").requireProblem(http.StatusInternalServerError, "internal")
}

func TestMetrics(t *testing.T) {
	r := newRig(t, nil, nil)
	r.get("/v1/posts/1/likes")
	r.get("/v1/posts/2/likes")
	r.get("/v1/posts/x/likes")
	r.ask("BREW", "/v1/nothing", "")
	const route, requests = "/v1/posts/{post_id}/likes", "kudos_reader_requests_total"
	require.EqualValues(t, 2, r.metric(requests, "route", route, "method", "get", "code", "200"))
	require.EqualValues(t, 1, r.metric(requests, "route", route, "method", "get", "code", "400"))
	require.EqualValues(t, 1, r.metric(requests, "route", "other", "method", "unknown", "code", "404"))
	require.EqualValues(t, 3, r.metric("kudos_reader_request_seconds", "route", route))

	_, err := newAPI(DefaultOptions(), r.likes, r.rankings, nil, r.log, r.metrics)
	require.ErrorAs(t, err, new(prometheus.AlreadyRegisteredError))
}
