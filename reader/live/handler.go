package live

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http/httpguts"

	"kudos/httpserver/problem"
)

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
const (
	retryWhenFull  = "10"
	retryWhenReady = "1"
)

const leaveTimeout = 2 * time.Second // bounds the closing of a connection

// refusal is a response that is not a stream.
type refusal struct {
	*problem.Problem
	retryAfter string // seconds; "": a retry is useless
}

func (r *refusal) slug() string { return r.Type[strings.LastIndexByte(r.Type, ':')+1:] }

// ServeHTTP opens a stream and serves it until it ends.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		const allow = "GET, HEAD"
		w.Header().Set("Allow", allow)
		problem.Write(w, problem.MethodNotAllowed(r.Method, allow))
		return
	}
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
	s := newStream(ctx)
	defer s.end(nil)
	if no := h.admit(s); no != nil {
		return no
	}
	defer h.dismiss(s)
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

// Values of the label kind.
const (
	kindSSE       = "sse"
	kindWebSocket = "websocket"
)

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
		refused: counter("streams_refused_total", "reason",
			"Live streams rejected, by problem type."),
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
