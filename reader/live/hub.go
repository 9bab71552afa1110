package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kudos/httpserver/problem"
)

// Hub has all open streams. It serves GET /v1/stream while Run runs.
type Hub struct {
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

type phase int

const (
	idle phase = iota
	running
	stopping
)

// Options configure the live streams; all except Origins are required.
type Options struct {
	MaxStreams int           // that may be open; more get 429
	MaxPosts   int           // in one stream
	Interval   time.Duration // between values of a subject that keeps changing
	Heartbeat  time.Duration // between heartbeats of a stream
	// WriteTimeout is how long a client may take to accept a write, or to answer a ping, before its stream is closed.
	WriteTimeout time.Duration
	// Origins are those of pages that may open a WebSocket, such as https://www.example.com; "*": all. (SSE has CORS.)
	Origins []string
}

// New subscribes to the views; it does no I/O. The metrics are registered with reg.
func New(o Options, likes Likes, rankings Rankings, log *slog.Logger, reg prometheus.Registerer) (*Hub, error) {
	metrics, err := newMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of live streams: %w", err)
	}
	h := &Hub{
		options: o, likes: likes, rankings: rankings, log: log, metrics: metrics,
		posts:   newRegistry[uint64](likes.Epoch),
		ranked:  newRegistry[rankingKey](rankings.Epoch),
		changed: make(chan struct{}, 1),
	}
	h.mu.streams = map[*stream]struct{}{}
	h.mu.drained = make(chan struct{})
	likes.Watch(h.likesChanged)
	rankings.Watch(h.rankingChanged)
	return h, nil
}

// Run publishes changes until ctx ends. Then it closes all streams, and returns once they are closed: each has
// WriteTimeout for the write in flight, and leaveTimeout to close its connection. Call it once.
func (h *Hub) Run(ctx context.Context) error {
	if err := h.start(); err != nil {
		return err
	}
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

func (h *Hub) start() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.phase != idle {
		return errors.New("live: Run was called twice")
	}
	h.mu.phase = running
	return nil
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

// open returns the number of streams.
func (h *Hub) open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.mu.streams)
}

// admit registers a stream, or says why not.
func (h *Hub) admit(s *stream) *refusal {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.phase != running {
		return unavailable(slugNotRunning, "Streams unavailable", retryWhenReady,
			"there are no live streams: the reader is starting or shutting down")
	}
	if len(h.mu.streams) >= h.options.MaxStreams {
		return &refusal{problem.New(http.StatusTooManyRequests, slugTooMany, "Too many concurrent streams",
			"the limit of open live streams is reached (reader.max_streams, %d)", h.options.MaxStreams),
			retryWhenFull}
	}
	h.mu.streams[s] = struct{}{}
	return nil
}

// dismiss removes a stream that has left its subjects and closed its connection.
func (h *Hub) dismiss(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.mu.streams, s)
	if h.mu.phase == stopping && len(h.mu.streams) == 0 {
		close(h.mu.drained)
	}
}
