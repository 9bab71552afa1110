package reader

import (
	"context"
	_ "embed" // openapi.yaml
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"kudos/httpserver/bodies"
	"kudos/httpserver/origin"
	"kudos/httpserver/problem"
	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

// document describes the API; a test holds the two against each other.
//
//go:embed openapi.yaml
var document string

// likesCopy is what the API needs of the copy of the state table (view.Likes).
type likesCopy interface {
	Partitions() (int32, error)
	Homes(post uint64) ([]int32, error)
	HomesOfUser(post, user uint64) ([]int32, error)
	AsOf(partition int32) (wire.Position, error)
	Wait(ctx context.Context, want wire.Position) error
	CheckEnds(ctx context.Context, want []wire.Position) error
	Counts(posts []uint64) (counts []schema.Counts, asOf []wire.Position, err error)
	Reaction(post, user uint64) (view.Reaction, wire.Position, error)
	Likers(post, after uint64, limit int) (likers []view.Liker, next uint64, asOf wire.Position, err error)
	Totals() view.Totals
	Lag() (events int64, behind time.Duration, known bool)
}

// rankingsCopy is what the API needs of the copy of trending (view.Rankings).
type rankingsCopy interface {
	Get(region, window string) (*view.Ranking, error)
	List() ([]*view.Ranking, error)
}

// api answers all of openapi.yaml but the streams.
type api struct {
	options  Options
	likes    likesCopy
	rankings rankingsCopy
	history  history // nil: MySQL is not configured
	log      *slog.Logger
	now      func() time.Time

	working     *semaphore.Weighted // slots of requests that are worked on, and
	waiting     *semaphore.Weighted // of those that wait for min_offset: MaxConcurrentRequests each
	bodies      *bodies.Reader
	scratch     sync.Pool // *scratch
	historyAway atomic.Bool
	metrics     *apiMetrics
	headers     headers
	handler     http.Handler
}

// newAPI puts the handler together; it does no I/O. A history that is nil means that
// MySQL is not configured. The metrics are registered with reg.
func newAPI(o Options, likes likesCopy, rankings rankingsCopy, h history, log *slog.Logger, reg prometheus.Registerer) (*api, error) {
	a := &api{
		options: o, likes: likes, rankings: rankings, history: h, log: log, now: time.Now,
		working: semaphore.NewWeighted(int64(o.MaxConcurrentRequests)),
		waiting: semaphore.NewWeighted(int64(o.MaxConcurrentRequests)),
		bodies:  bodies.NewReader(maxBody, maxBodies),
		scratch: sync.Pool{New: func() any { return new(scratch) }},
		metrics: newAPIMetrics(),
		headers: newHeaders(o.CacheMaxAge),
	}
	if err := a.metrics.register(reg); err != nil {
		return nil, fmt.Errorf("registering the metrics of the reader's API: %w", err)
	}
	mux := http.NewServeMux()
	for path, methods := range a.routes() {
		handlers := map[string]http.HandlerFunc{}
		for method, answer := range methods {
			handlers[method] = a.handle(answer)
		}
		mux.Handle(path, a.metrics.counted(path, problem.ByMethod(handlers)))
	}
	a.handler = origin.Access{
		Origins: o.Origins,
		Methods: []string{http.MethodGet, http.MethodHead, http.MethodPost},
		Headers: []string{"Content-Type", "If-None-Match"},
		Exposed: []string{"ETag", "Kudos-As-Of", "Retry-After"},
	}.Handler(mux)
	return a, nil
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// answer answers a request, or returns what keeps it from that and has written nothing. It may exchange the
// slot that it holds.
type answer func(w http.ResponseWriter, r *http.Request, held *slot) error

// routes is all that the API serves, by path and method.
func (a *api) routes() map[string]map[string]answer {
	get := func(f answer) map[string]answer { return map[string]answer{http.MethodGet: f} }
	return map[string]map[string]answer{
		"/v1/posts/{post_id}/likes":           get(a.getLikes),
		"/v1/posts/{post_id}/likes/{user_id}": get(a.getReaction),
		"/v1/posts/{post_id}/likers":          get(a.listLikers),
		"/v1/likes":                           get(a.getManyLikes),
		"/v1/likes:get":                       {http.MethodPost: a.getManyLikesByBody},
		"/v1/trending":                        get(a.listRankings),
		"/v1/trending/{region}":               get(a.getTrending),
		"/v1/leaderboard":                     get(a.getLeaderboard),
		"/v1/analytics/likes":                 get(a.getLikesOverTime),
		"/v1/stats":                           get(a.getStats),
		"/openapi.yaml":                       get(a.getDocument),
		"/":                                   nil,
	}
}

// handle bounds how many requests are in flight. A POST has a body, and takes its slot itself once that has
// arrived: one that never does would keep it from others.
func (a *api) handle(f answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var held slot
		defer held.release()
		var err error
		if r.Method != http.MethodPost {
			err = a.work(&held)
		}
		if err == nil {
			err = f(w, r, &held)
		}
		if err != nil {
			a.fail(w, r, err)
		}
	}
}

func (a *api) getDocument(w http.ResponseWriter, r *http.Request, _ *slot) error {
	in := read(r)
	if err := in.refusal(); err != nil {
		return err
	}
	a.write(w, r, written{
		body: []byte(document), contentType: a.headers.yaml, caching: a.headers.noCache, etag: etagOf([]byte(document)),
	})
	return nil
}
