package reader

import (
	"context"
	_ "embed" // openapi.yaml
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/httpserver"
	"kudos/httpserver/problem"
	"kudos/reader/query"
	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

// This file has the routes of the HTTP API and how each is answered.

// document describes the API; a test compares the two.
//
//go:embed openapi.yaml
var document string

// lane is what the API needs of each view.Lane.
type lane interface {
	Partitions() (int32, error)
	PartitionsOf(post uint64) ([]int32, error)
	Layout() view.Layout
	AsOf(partition int32) (wire.Position, error)
	Wait(ctx context.Context, want wire.Position) error
}

// countsLane is what the API needs of view.Counts.
type countsLane interface {
	lane
	Counts(posts []uint64) (counts []schema.Counts, asOf []wire.Position, err error)
	Totals() view.Totals
	Lag() (events int64, behind time.Duration, open []wire.OpenTransaction, known bool)
}

// reactionsLane is what the API needs of view.Reactions.
type reactionsLane interface {
	lane
	PartitionsOfUser(post, user uint64) ([]int32, error)
	AwaitLayout(ctx context.Context, partition int32, want view.Layout) error
	Of(partition int32, user uint64, posts []uint64) ([]view.Reaction, wire.Position, error)
	Likers(partition int32, post, after uint64, limit int) (view.Page, wire.Position, error)
	Holders(partition int32) (addresses []string, generation int32)
}

// lanes are the views of likes.
type lanes struct {
	counts    countsLane
	reactions reactionsLane                                                 // nil: this reader does not keep them
	checkEnds func(ctx context.Context, want []wire.Position) error         // see view.Likes.CheckEnds
	ends      func(ctx context.Context, partitions []int32) []wire.Position // see view.Likes.Ends
	askKafka  func(ctx context.Context, h *wire.Health) kadm.ListedOffsets
}

// rankingsCopy is what the API needs of view.Rankings.
type rankingsCopy interface {
	Get(region, window string) (*view.Ranking, error)
	List() ([]*view.Ranking, error)
}

// api serves all of openapi.yaml except the streams.
type api struct {
	http.Handler
	peer    http.Handler // serves other readers
	options Options
	lanes
	peers    *peers // nil: this reader keeps all reactions
	rankings rankingsCopy
	history  history     // nil: MySQL is not configured
	posts    postHistory // nil: it is not kept
	log      *slog.Logger
	now      func() time.Time
	public   []string // Cache-Control of counts and rankings
	metrics  *apiMetrics

	proxies     httpserver.Networks
	working     *httpserver.Slots // of requests being processed, and
	waiting     *httpserver.Slots // of those waiting for min_offset: MaxConcurrentRequests each
	bodies      *httpserver.BodyReader
	scratch     sync.Pool // *scratch
	historyDown atomic.Bool
	health      health
}

// newAPI does no I/O. A nil history means that MySQL is not configured.
func newAPI(o Options, likes lanes, rankings rankingsCopy, h history, log *slog.Logger, reg prometheus.Registerer,
) (*api, error) {
	a := &api{
		options: o, lanes: likes, rankings: rankings, history: h, log: log, now: time.Now, public: noCache,
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
	a.metrics = metrics
	a.proxies, _ = httpserver.ParseNetworks(o.TrustedProxies) // validated
	const setting = "reader.max_concurrent_requests"
	total := o.MaxConcurrentRequests
	a.working = httpserver.NewSlots(total, "concurrent requests", setting, "requests", metrics.refused)
	a.waiting = httpserver.NewSlots(total, "requests that wait for min_offset", setting, minOffset, metrics.refused)
	mux := http.NewServeMux()
	for path, methods := range a.routes() {
		mux.Handle(path, metrics.counted(path, problem.ByMethod(methods)))
	}
	a.peer = metrics.counted(peerPath, problem.ByMethod(map[string]http.HandlerFunc{
		http.MethodPost: a.handle(a.answerPeer)}))
	a.Handler = httpserver.CORS{
		Origins: o.Origins, Methods: []string{http.MethodGet, http.MethodHead, http.MethodPost},
		Headers: []string{"Content-Type", "If-None-Match"}, Exposed: []string{"ETag", "Kudos-As-Of", "Retry-After"},
	}.Handler(mux)
	return a, nil
}

// routes returns everything that the API serves, by path and method.
func (a *api) routes() map[string]map[string]http.HandlerFunc {
	get := func(answer answer, parameters ...string) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodGet: a.handle(answer, parameters...)}
	}
	return map[string]map[string]http.HandlerFunc{
		postRoute:                             get(a.getLikes, minOffset),
		"/v1/posts/{post_id}/likes/{user_id}": get(a.getReaction, minOffset),
		"/v1/posts/{post_id}/likers":          get(a.listLikers, pageSize, pageToken, minOffset),
		"/v1/posts/{post_id}/history":         get(a.getPostHistory, "region", "interval", "from", "to"),
		pageRoute:                             get(a.getManyLikes, query.PostIDs, minOffset, query.Viewer),
		"/v1/likes:get":                       {http.MethodPost: a.handle(a.getManyLikesByBody)},
		"/v1/reactions:get":                   {http.MethodPost: a.handle(a.getManyReactions)},
		"/v1/trending":                        get(a.listRankings),
		"/v1/trending/{region}":               get(a.getTrending, "window"),
		"/v1/leaderboard":                     get(a.getLeaderboard, "region", "period"),
		"/v1/analytics/likes":                 get(a.getLikesOverTime, "region", "interval", "from", "to"),
		"/v1/stats":                           get(a.getStats),
		"/v1/health":                          get(a.getHealth),
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
		q := &request{w: w, client: a.proxies.ClientOf(r)}
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
	client   netip.Addr        // see httpserver.Networks.ClientOf; zero: no limit per address
	slot     *httpserver.Slots // of which it holds a slot; nil: none
	*scratch                   // set with the slot
}

// scratch is reusable memory for a response with counts.
type scratch struct {
	posts []uint64
	body  []byte
}

// work takes a slot for a request that can be processed at once.
func (a *api) work(q *request) error {
	if err := q.take(a.working); err != nil {
		return err
	}
	q.scratch = a.scratch.Get().(*scratch)
	return nil
}

// take takes a slot, then returns the one held before. A request that waits for min_offset takes one of waiting, which
// it then keeps: it takes none from the others, neither while it waits nor when all that wait resume at once.
func (q *request) take(of *httpserver.Slots) error {
	if err := of.Take(q.client, 1); err != nil {
		return unavailable(problem.TooManyRequests("%s", err))
	}
	if q.slot != nil {
		q.slot.Return(q.client, 1)
	}
	q.slot = of
	return nil
}

func (a *api) release(q *request) {
	if q.slot != nil {
		q.slot.Return(q.client, 1)
		a.scratch.Put(q.scratch)
		q.slot = nil
	}
}

func (a *api) getDocument(q *request) (reply, error) {
	body := []byte(document)
	return reply{body: body, contentType: yamlType, caching: noCache, etag: etagOf(body)}, q.refusal()
}

// Header values that many responses share.
var (
	jsonType, yamlType = []string{"application/json"}, []string{"application/yaml"}
	noCache, private   = []string{"no-cache"}, []string{"private, no-cache"}
)

type reply struct {
	body                 []byte
	contentType, caching []string
	etag, asOf           string // "": none
}

// write writes the reply, or 304 if the client has it already. A failed write means that the client is gone.
func (a reply) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["Cache-Control"] = a.caching
	large := len(a.body) >= minCompressed
	if large {
		h.Add("Vary", "Accept-Encoding")
	}
	if a.asOf != "" {
		h.Set("Kudos-As-Of", a.asOf)
	}
	if a.etag != "" {
		h.Set("ETag", a.etag)
		if matches(r.Header["If-None-Match"], a.etag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h["Content-Type"] = a.contentType
	if large && r.Header["Accept-Encoding"] != nil {
		c := brotli.HTTPCompressor(w, r) // or gzip
		_, _ = c.Write(a.body)
		_ = c.Close()
		return
	}
	// Without it, a body that exceeds the server's buffer would be chunked.
	if len(a.body) > 2048 {
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	_, _ = w.Write(a.body)
}

// minCompressed is from how many bytes on bodies are compressed: a page of 50 counts takes longer to compress than to
// send.
const minCompressed = 4 << 10

// encode makes a reply that is requested too seldom to have its own encoder.
func encode(q *request, caching []string, body any) (reply, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return reply{}, fmt.Errorf("encoding the response to %s: %w", q.Request.URL.Path, err)
	}
	return reply{body: b, contentType: jsonType, caching: caching}, nil
}

// etagOf returns the weak entity tag of a response's content. It is the same from every reader.
func etagOf(content []byte) string {
	b := append(make([]byte, 0, 20), `W/"`...)
	return string(append(strconv.AppendUint(b, xxhash.Sum64(content), 16), '"'))
}

// matches compares weakly (RFC 9110, 13.1.2). Our tags contain no comma.
func matches(ifNoneMatch []string, etag string) bool {
	for _, line := range ifNoneMatch {
		for tag := range strings.SplitSeq(line, ",") {
			tag = strings.TrimSpace(tag)
			if tag == "*" || strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(etag, "W/") {
				return true
			}
		}
	}
	return false
}

// refusal is an error that becomes an error response.
type refusal struct {
	*problem.Problem
	AsOf  []wire.Position `json:"as_of,omitempty"` // with not-covered: how far the response would have gone
	again bool            // a retry may succeed soon
}

func (r *refusal) Error() string { return r.Detail }

const retryAfter = "1" // how long a client is told to wait before a retry, in seconds

func refuse(p *problem.Problem) *refusal      { return &refusal{Problem: p} }
func unavailable(p *problem.Problem) *refusal { return &refusal{Problem: p, again: true} }

func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	var no *refusal
	var notReady *view.NotReadyError
	switch {
	case errors.As(err, &no):
	case errors.As(err, &notReady):
		no = unavailable(problem.New(http.StatusServiceUnavailable, "not-ready", "Reader not ready", "%s", notReady))
	default:
		a.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		no = refuse(problem.New(http.StatusInternalServerError, "internal",
			"Internal error", "the reader failed to answer; its log has the cause"))
	}
	if no.again {
		w.Header().Set("Retry-After", retryAfter)
	}
	problem.WriteBody(w, no.Status, no)
}

type apiMetrics struct {
	requests *prometheus.CounterVec   // route, method, code
	seconds  *prometheus.HistogramVec // route
	refused  *prometheus.CounterVec   // kind
}

func newAPIMetrics(reg prometheus.Registerer) (*apiMetrics, error) {
	m := &apiMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kudos", Subsystem: "reader", Name: "requests_total",
			Help: "HTTP requests by route, method and status code, without streams.",
		}, []string{"route", "method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "kudos", Subsystem: "reader", Name: "request_seconds",
			Help: "Seconds from the headers of a request to the end of its response, by route, " +
				"including the wait for min_offset.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 4, 10), // 50 µs to 13 s
		}, []string{"route"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kudos", Subsystem: "reader", Name: "refused_total",
			Help: "Requests above a limit of concurrency (requests, min_offset, streams), or above an address's " +
				"share of it (address_requests, address_min_offset, address_streams).",
		}, []string{"kind"}),
	}
	return m, errors.Join(reg.Register(m.requests), reg.Register(m.seconds), reg.Register(m.refused))
}

func (m *apiMetrics) counted(route string, next http.Handler) http.Handler {
	if route == "/" {
		route = "other"
	}
	label := prometheus.Labels{"route": route}
	return promhttp.InstrumentHandlerDuration(m.seconds.MustCurryWith(label),
		promhttp.InstrumentHandlerCounter(m.requests.MustCurryWith(label), next))
}
