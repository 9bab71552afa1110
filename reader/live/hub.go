// Package live streams counts and rankings as they change: GET /v1/stream, as Server-Sent Events or over a WebSocket.
//
// The views (package view) report changes by callback. Each open stream gets the current values, then each newer one.
//
//	view.Counts ───┐ Watch: a newer value is kept       each Interval: encoded once,
//	               ├─► if a stream shows its subject ──► then the subject's streams are ──► stream (a goroutine
//	view.Rankings ─┘ (subject.go)                       woken (Hub.Run)                    each) ─► SSE, WebSocket
//
// Nothing is queued for a stream. When woken, it writes the newest value of each subject, if that is newer than what it
// wrote last. So a slow client skips to the newest value, delays nobody and costs no memory. While nothing changes,
// only heartbeats are sent.
//
// A stream registers with its subjects before it reads the view. A change that this read misses becomes visible later.
// Its callback comes later still, and finds the stream registered. If both deliver a change, its position shows it.
package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http/httpguts"

	"kudos/httpserver"
	"kudos/httpserver/problem"
	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

// Hub has all open streams. It serves GET /v1/stream while Run runs.
type Hub struct {
	http.Handler
	options  Options
	likes    Likes
	rankings Rankings
	log      *slog.Logger
	metrics  *metrics

	posts   *registry[uint64]
	ranked  *registry[rankingKey]
	changed chan struct{} // holds one element while values wait to be published

	mu struct {
		sync.Mutex
		phase   phase
		streams map[*stream]struct{}
		drained chan struct{} // closed when no stream is left after stopping
	}
}

// Likes is what the hub needs of view.Counts.
type Likes interface {
	PartitionsOf(post uint64) ([]int32, error)
	Epoch(partition int32) (string, error)
	AsOf(partition int32) (wire.Position, error)
	Counts(posts []uint64) ([]schema.Counts, []wire.Position, error)
	// Watch reports changes. If they are nil, anything may have changed.
	Watch(func(asOf wire.Position, changes []view.Change))
}

// Rankings is what the hub needs of view.Rankings.
type Rankings interface {
	Partition(region, window string) (int32, error)
	Epoch(partition int32) (string, error)
	Get(region, window string) (*view.Ranking, error)
	Watch(func(*view.Ranking))
}

type phase int

const (
	idle phase = iota
	running
	stopping
)

// Options configure the live streams; all except Origins are required.
type Options struct {
	Slots     *httpserver.Slots                // of open streams; more get 429
	ClientOf  func(r *http.Request) netip.Addr // who has the slot
	MaxPosts  int                              // in one stream
	Interval  time.Duration                    // between values of a subject that keeps changing
	Heartbeat time.Duration                    // between heartbeats of a stream
	// WriteTimeout is how long a client may take to accept a write, or to answer a ping, before its stream is closed.
	WriteTimeout time.Duration
	// Origins are those of pages that may open a WebSocket, such as https://www.example.com; "*": all. (SSE has CORS.)
	Origins []string
	// Reactions returns a user's reactions to posts, as of these positions in likes or later ones. nil: they are not
	// kept.
	Reactions func(ctx context.Context, client netip.Addr, user uint64, posts []uint64, covered []wire.Position,
	) ([]wire.UserReaction, error)
}

// New subscribes to the views; it does no I/O. The metrics are registered with reg.
func New(o Options, likes Likes, rankings Rankings, log *slog.Logger, reg prometheus.Registerer) (*Hub, error) {
	metrics, err := newMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of live streams: %w", err)
	}
	h := &Hub{options: o, likes: likes, rankings: rankings, log: log, metrics: metrics, changed: make(chan struct{}, 1),
		posts: &registry[uint64]{epoch: likes.Epoch}, ranked: &registry[rankingKey]{epoch: rankings.Epoch}}
	h.Handler = problem.ByMethod(map[string]http.HandlerFunc{http.MethodGet: h.answer})
	h.mu.streams, h.mu.drained = map[*stream]struct{}{}, make(chan struct{})
	likes.Watch(h.likesChanged)
	rankings.Watch(h.rankingChanged)
	return h, nil
}

// Run publishes changes until ctx ends. Then it closes all streams, and returns once they are closed: each has
// WriteTimeout for the write in flight, and leaveTimeout to close its connection. Call it once.
func (h *Hub) Run(ctx context.Context) error {
	h.mu.Lock()
	h.mu.phase = running
	h.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return h.stop()
		case <-h.changed:
		}
		h.posts.publish(h.log)
		h.ranked.publish(h.log)
		// The first change after a pause is published at once; later ones are collected for Interval.
		select {
		case <-ctx.Done():
			return h.stop()
		case <-time.After(h.options.Interval):
		}
	}
}

// signal sends to a channel of capacity 1 unless it is full. It never blocks.
func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// stop ends all streams and waits for their handlers.
func (h *Hub) stop() error {
	h.mu.Lock()
	h.mu.phase = stopping
	for s := range h.mu.streams {
		s.end(errShutdown)
	}
	if len(h.mu.streams) == 0 {
		close(h.mu.drained)
	}
	h.mu.Unlock()

	select {
	case <-h.mu.drained:
		return nil
	case <-time.After(h.options.WriteTimeout + 2*leaveTimeout):
		return fmt.Errorf("live: %d streams did not end", h.open())
	}
}

func (h *Hub) open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.mu.streams)
}

// admit registers a stream, or says why not.
func (h *Hub) admit(s *stream, client netip.Addr) *refusal {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.phase != running {
		return unavailable(slugNotRunning, "Streams unavailable", retryWhenReady,
			"there are no live streams: the reader is starting or shutting down")
	}
	if err := h.options.Slots.Take(client, 1); err != nil {
		return &refusal{problem.New(http.StatusTooManyRequests, slugTooMany, "Too many concurrent streams", "%s", err),
			retryWhenFull}
	}
	h.mu.streams[s] = struct{}{}
	return nil
}

// dismiss removes a stream that has left its subjects and closed its connection.
func (h *Hub) dismiss(s *stream, client netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.mu.streams, s)
	h.options.Slots.Return(client, 1)
	if h.mu.phase == stopping && len(h.mu.streams) == 0 {
		close(h.mu.drained)
	}
}

// Slugs of the problem types, which are also the values of the metric's label.
const (
	slugInvalid    = "invalid-request"
	slugOrigin     = "origin-not-allowed"
	slugTooMany    = "too-many-streams"
	slugNotReady   = "not-ready"
	slugNotRunning = "not-running"
	slugFailed     = "failed"
)

// Retry-After, in seconds. A slot becomes free when some stream ends, which may take long; a view catches up soon.
const retryWhenFull, retryWhenReady = "10", "1"

const leaveTimeout = 2 * time.Second // bounds the closing of a connection

// refusal is a response that is not a stream.
type refusal struct {
	*problem.Problem
	retryAfter string // seconds; "": a retry is useless
}

func (r *refusal) slug() string { return r.Type[strings.LastIndexByte(r.Type, ':')+1:] }

// answer opens a stream and serves it until it ends, or says why not.
func (h *Hub) answer(w http.ResponseWriter, r *http.Request) {
	no := h.serve(w, r)
	if no == nil {
		return
	}
	h.metrics.refused.WithLabelValues(no.slug()).Inc()
	if no.retryAfter != "" {
		w.Header().Set("Retry-After", no.retryAfter)
	}
	problem.Write(w, no.Problem)
}

// serve returns why no stream was opened, or nil after the stream has ended.
func (h *Hub) serve(w http.ResponseWriter, r *http.Request) *refusal {
	q, p := parse(r, h.options.MaxPosts)
	if p != nil {
		return &refusal{Problem: p}
	}
	q.client = h.options.ClientOf(r)
	if httpguts.HeaderValuesContainsToken(r.Header["Upgrade"], "websocket") {
		// After the connection is hijacked, the request's context says nothing about it.
		ctx := context.WithoutCancel(r.Context())
		return h.show(ctx, q, kindWebSocket, func(s *stream) (conn, *refusal) { return h.openWebSocket(w, r, s) })
	}
	return h.show(r.Context(), q, kindSSE, func(*stream) (conn, *refusal) { return h.openSSE(w, r) })
}

// show subscribes a stream, opens its connection and serves it. If open returns neither a connection nor a refusal,
// there is nobody to serve: it was a HEAD request, or the client is gone.
func (h *Hub) show(ctx context.Context, q *wanted, kind string, open func(*stream) (conn, *refusal)) *refusal {
	if q.viewer != 0 && h.options.Reactions == nil {
		return &refusal{Problem: problem.New(http.StatusNotFound, "no-reactions", "This reader keeps counts only",
			"this reader does not keep reactions (reader.reactions is false)")}
	}
	s := newStream(ctx)
	defer s.end(nil)
	if no := h.admit(s, q.client); no != nil {
		return no
	}
	defer h.dismiss(s, q.client)
	defer s.leave()
	if err := h.subscribe(s, q); err != nil {
		return h.refusalOf(err)
	}
	c, no := open(s)
	if c == nil {
		return no
	}
	streams, messages := h.metrics.streams.WithLabelValues(kind), h.metrics.messages.WithLabelValues(kind)
	streams.Inc()
	defer streams.Dec()
	if q.viewer != 0 {
		defer s.view(q, h.options)()
	}
	cause := s.run(c, h.options, func(n int) { messages.Add(float64(n)) })
	if errors.Is(cause, errSlow) {
		h.metrics.dropped.WithLabelValues(kind).Inc()
	}
	h.log.Debug("live stream ended", "kind", kind, "cause", cause)
	c.close(cause)
	return nil
}

func unavailable(slug, title, retryAfter, detail string) *refusal {
	return &refusal{problem.New(http.StatusServiceUnavailable, slug, title, "%s", detail), retryAfter}
}

// refusalOf says why a stream that was admitted could not be opened.
func (h *Hub) refusalOf(err error) *refusal {
	if notReady(err) || errors.Is(err, errEpochs) || errors.Is(err, errRecreated) {
		return unavailable(slugNotReady, "Reader not ready", retryWhenReady, err.Error())
	}
	h.log.Error("live: cannot open a stream", "error", err)
	return unavailable(slugFailed, "Internal error", retryWhenFull,
		"the reader failed to read the values to send; its log has the cause")
}

const kindSSE, kindWebSocket = "sse", "websocket" // values of the label kind

type metrics struct {
	streams  *prometheus.GaugeVec   // kind
	messages *prometheus.CounterVec // kind
	dropped  *prometheus.CounterVec // kind
	refused  *prometheus.CounterVec // reason
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, label, help string) *prometheus.CounterVec {
		o := prometheus.CounterOpts{Namespace: "kudos", Subsystem: "reader", Name: name, Help: help}
		return prometheus.NewCounterVec(o, []string{label})
	}
	m := &metrics{
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "kudos", Subsystem: "reader", Name: "streams",
			Help: "Open live streams, by kind."}, []string{"kind"}),
		messages: counter("stream_messages_total", "kind", "Messages sent on live streams, by kind."),
		dropped: counter("streams_dropped_total", "kind",
			"Live streams closed because the client was too slow, by kind."),
		refused: counter("streams_refused_total", "reason", "Live streams rejected, by problem type."),
	}
	for _, kind := range []string{kindSSE, kindWebSocket} {
		m.streams.WithLabelValues(kind)
		m.messages.WithLabelValues(kind)
		m.dropped.WithLabelValues(kind)
	}
	for _, reason := range []string{slugInvalid, slugOrigin, slugTooMany, slugNotReady, slugNotRunning, slugFailed} {
		m.refused.WithLabelValues(reason)
	}
	return m, errors.Join(
		reg.Register(m.streams), reg.Register(m.messages), reg.Register(m.dropped), reg.Register(m.refused))
}
