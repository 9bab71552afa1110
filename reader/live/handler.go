package live

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"kudos/httpserver/problem"
)

// Why a stream is not opened, but for what is wrong with the request.
var (
	errNotRunning = errors.New("live streams are not open: the reader starts or shuts down")
	errTooMany    = errors.New("as many live streams are open as the reader takes")
)

// Words of the problems, as clients and the metric see them.
const (
	slugInvalid    = "invalid-request"
	slugOrigin     = "origin-not-allowed"
	slugTooMany    = "too-many-streams"
	slugNotReady   = "not-ready"
	slugNotRunning = "not-running"
	slugFailed     = "failed"
)

// What a refused client is told to wait, in seconds. A place becomes free when some
// stream ends, which may take; a copy catches up in a moment.
const (
	retryWhenFull  = "10"
	retryWhenReady = "1"
)

// leaveTimeout bounds the leave that is taken of a client.
const leaveTimeout = 2 * time.Second

// refusal is an answer that is not a stream.
type refusal struct {
	*problem.Problem
	slug       string
	retryAfter string // seconds; "": it is no use to try again
}

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
	h.metrics.refused.WithLabelValues(no.slug).Inc()
	if no.retryAfter != "" {
		w.Header().Set("Retry-After", no.retryAfter)
	}
	problem.Write(w, no.Problem)
}

// serve returns why there is no stream, or nil when it has ended.
func (h *Hub) serve(w http.ResponseWriter, r *http.Request) *refusal {
	q, p := parse(r, h.options.MaxPosts)
	if p != nil {
		return &refusal{Problem: p, slug: slugInvalid}
	}
	if isWebSocket(r) {
		// The request's context means nothing once its connection is taken over.
		return h.show(context.WithoutCancel(r.Context()), q, kindWebSocket, func(s *stream) (conn, *refusal) { return h.openWebSocket(w, r, s) })
	}
	return h.show(r.Context(), q, kindSSE, func(*stream) (conn, *refusal) { return h.openSSE(w, r) })
}

// show serves a stream on what open opens once there is something to show. Neither a
// connection nor a refusal: there is nobody to show it to.
func (h *Hub) show(ctx context.Context, q *wanted, kind string, open func(*stream) (conn, *refusal)) *refusal {
	s := newStream(ctx)
	defer s.end(nil)
	if err := h.admit(s); err != nil {
		return h.refusalOf(err)
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

// isWebSocket tells whether the client wants to upgrade.
func isWebSocket(r *http.Request) bool {
	for _, list := range r.Header.Values("Upgrade") {
		for token := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "websocket") {
				return true
			}
		}
	}
	return false
}

// refusalOf says why a stream cannot be opened now.
func (h *Hub) refusalOf(err error) *refusal {
	switch {
	case errors.Is(err, errTooMany):
		return &refusal{problem.New(http.StatusTooManyRequests, slugTooMany, "Too many streams at a time",
			"%v (reader.max_streams, %d)", err, h.options.MaxStreams), slugTooMany, retryWhenFull}
	case errors.Is(err, errNotRunning):
		return &refusal{problem.New(http.StatusServiceUnavailable, slugNotRunning, "There are no streams now", "%v", err), slugNotRunning, retryWhenReady}
	case notReady(err), errors.Is(err, errEpochs), errors.Is(err, errAnew):
		return &refusal{problem.New(http.StatusServiceUnavailable, slugNotReady, "The reader is not ready for this", "%v", err), slugNotReady, retryWhenReady}
	}
	h.log.Error("live: a stream cannot be opened", "error", err)
	return &refusal{problem.New(http.StatusServiceUnavailable, slugFailed, "The reader failed", "the reader could not read what is to be shown; its log says why"), slugFailed, retryWhenFull}
}
