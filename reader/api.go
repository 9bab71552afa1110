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

	"kudos/httpserver"
	"kudos/httpserver/problem"
	"kudos/reader/query"
	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

// document describes the API; a test compares the two.
//
//go:embed openapi.yaml
var document string

// likesCopy is what the API needs of view.Likes.
type likesCopy interface {
	Partitions() (int32, error)
	PartitionsOf(post uint64) ([]int32, error)
	PartitionsOfUser(post, user uint64) ([]int32, error)
	AsOf(partition int32) (wire.Position, error)
	Wait(ctx context.Context, want wire.Position) error
	CheckEnds(ctx context.Context, want []wire.Position) error
	Counts(posts []uint64) (counts []schema.Counts, asOf []wire.Position, err error)
	Reaction(post, user uint64) (view.Reaction, wire.Position, error)
	Likers(post, after uint64, limit int) (likers []wire.Liker, next uint64, asOf wire.Position, err error)
	Totals() view.Totals
	Lag() (events int64, behind time.Duration, known bool)
}

// rankingsCopy is what the API needs of view.Rankings.
type rankingsCopy interface {
	Get(region, window string) (*view.Ranking, error)
	List() ([]*view.Ranking, error)
}

// api serves all of openapi.yaml except the streams.
type api struct {
	http.Handler
	options  Options
	likes    likesCopy
	rankings rankingsCopy
	history  history // nil: MySQL is not configured
	log      *slog.Logger
	now      func() time.Time
	public   []string // Cache-Control of counts and rankings

	working     *semaphore.Weighted // slots of requests being processed, and
	waiting     *semaphore.Weighted // of those waiting for min_offset: MaxConcurrentRequests each
	bodies      *httpserver.BodyReader
	scratch     sync.Pool // *scratch
	historyDown atomic.Bool
}

// newAPI does no I/O. A nil history means that MySQL is not configured.
func newAPI(
	o Options, likes likesCopy, rankings rankingsCopy, h history, log *slog.Logger, reg prometheus.Registerer,
) (*api, error) {
	a := &api{
		options: o, likes: likes, rankings: rankings, history: h, log: log, now: time.Now, public: noCache,
		working: semaphore.NewWeighted(int64(o.MaxConcurrentRequests)),
		waiting: semaphore.NewWeighted(int64(o.MaxConcurrentRequests)),
		bodies:  httpserver.NewBodyReader(maxBody, maxBodies),
		scratch: sync.Pool{New: func() any { return new(scratch) }},
	}
	if o.CacheMaxAge > 0 {
		a.public = []string{fmt.Sprintf("public, max-age=%d", int64(o.CacheMaxAge.Seconds()))}
	}
	metrics, err := newAPIMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of the reader's API: %w", err)
	}
	mux := http.NewServeMux()
	for path, methods := range a.routes() {
		mux.Handle(path, metrics.counted(path, problem.ByMethod(methods)))
	}
	a.Handler = httpserver.CORS{
		Origins: o.Origins,
		Methods: []string{http.MethodGet, http.MethodHead, http.MethodPost},
		Headers: []string{"Content-Type", "If-None-Match"},
		Exposed: []string{"ETag", "Kudos-As-Of", "Retry-After"},
	}.Handler(mux)
	return a, nil
}

// routes returns everything that the API serves, by path and method.
func (a *api) routes() map[string]map[string]http.HandlerFunc {
	get := func(answer answer, parameters ...string) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodGet: a.handle(answer, parameters...)}
	}
	return map[string]map[string]http.HandlerFunc{
		"/v1/posts/{post_id}/likes":           get(a.getLikes, minOffset),
		"/v1/posts/{post_id}/likes/{user_id}": get(a.getReaction, minOffset),
		"/v1/posts/{post_id}/likers":          get(a.listLikers, pageSize, pageToken, minOffset),
		"/v1/likes":                           get(a.getManyLikes, query.PostIDs, minOffset),
		"/v1/likes:get":                       {http.MethodPost: a.handle(a.getManyLikesByBody)},
		"/v1/trending":                        get(a.listRankings),
		"/v1/trending/{region}":               get(a.getTrending, "window"),
		"/v1/leaderboard":                     get(a.getLeaderboard, "region", "period"),
		"/v1/analytics/likes":                 get(a.getLikesOverTime, "region", "interval", "from", "to"),
		"/v1/stats":                           get(a.getStats),
		"/openapi.yaml":                       get(a.getDocument),
		"/":                                   nil,
	}
}

// answer reads a request, waits for min_offset, and returns the reply or an error. It writes nothing.
type answer func(q *request) (reply, error)

// handle serves requests that may have these parameters, and bounds how many are in flight. A POST takes its slot
// itself once its body has arrived: a body that never arrives must not hold a slot.
func (a *api) handle(answer answer, parameters ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := &request{w: w}
		defer a.release(q)
		var reply reply
		var err error
		if r.Method != http.MethodPost {
			err = a.work(q)
		}
		if err == nil {
			q.Input = query.Read(r, parameters...)
			reply, err = answer(q)
		}
		if err != nil {
			a.fail(w, r, err)
			return
		}
		reply.write(w, r)
	}
}

type request struct {
	*query.Input
	w        http.ResponseWriter
	slot     *semaphore.Weighted // of which it holds a slot; nil: none
	*scratch                     // set with the slot
}

// scratch is reusable memory for a response with counts.
type scratch struct {
	posts []uint64
	body  []byte
}

// work takes a slot for a request that can be processed at once.
func (a *api) work(q *request) error {
	if !q.take(a.working) {
		return unavailable(problem.TooManyRequests(
			"the limit of concurrent requests is reached (reader.max_concurrent_requests)"))
	}
	q.scratch = a.scratch.Get().(*scratch)
	return nil
}

// wait exchanges the slot for one of the requests that wait for min_offset, which the request then keeps. So the
// requests that wait take no slots from the others, neither while they wait nor when all of them resume at once.
func (a *api) wait(q *request) error {
	if !q.take(a.waiting) {
		return unavailable(problem.TooManyRequests(
			"the limit of requests that wait for %s is reached (reader.max_concurrent_requests)", minOffset))
	}
	return nil
}

// take takes a slot, then releases the one held before.
func (q *request) take(of *semaphore.Weighted) bool {
	if !of.TryAcquire(1) {
		return false
	}
	if q.slot != nil {
		q.slot.Release(1)
	}
	q.slot = of
	return true
}

func (a *api) release(q *request) {
	if q.slot != nil {
		q.slot.Release(1)
		a.scratch.Put(q.scratch)
	}
}

func (a *api) getDocument(q *request) (reply, error) {
	body := []byte(document)
	return reply{body: body, contentType: yamlType, caching: noCache, etag: etagOf(body)}, q.refusal()
}
