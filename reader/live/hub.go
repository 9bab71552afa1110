package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Hub has all open streams. It serves GET /v1/stream while Run runs.
type Hub struct {
	options  Options
	likes    Likes
	rankings Rankings
	log      *slog.Logger
	metrics  *metrics

	posts  *registry[uint64]
	ranked *registry[rankingKey]
	// changed has one element while values wait to be published.
	changed chan struct{}

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

// New puts the parts together and watches the copies; it does no I/O. The metrics are
// registered with reg.
func New(o Options, likes Likes, rankings Rankings, log *slog.Logger, reg prometheus.Registerer) (*Hub, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	h := &Hub{
		options: o, likes: likes, rankings: rankings, log: log,
		metrics: newMetrics(),
		posts:   newRegistry[uint64](likes.Epoch),
		ranked:  newRegistry[rankingKey](rankings.Epoch),
		changed: make(chan struct{}, 1),
	}
	h.mu.streams = map[*stream]struct{}{}
	h.mu.drained = make(chan struct{})
	if err := h.metrics.register(reg); err != nil {
		return nil, fmt.Errorf("registering the metrics of live streams: %w", err)
	}
	likes.Watch(h.likesChanged)
	rankings.Watch(h.rankingChanged)
	return h, nil
}

// Run publishes what changes until ctx ends. Then it closes all streams, and returns
// when they are closed: each has WriteTimeout for what is being written, and a moment to
// take leave. Run it once.
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
		// The first change after a while is shown at once, those after it in turns.
		turn := time.NewTimer(h.options.Interval)
		select {
		case <-ctx.Done():
			turn.Stop()
			return h.stop()
		case <-turn.C:
		}
	}
}

// somethingChanged has Run publish at its next turn.
func (h *Hub) somethingChanged() {
	select {
	case h.changed <- struct{}{}:
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

	limit := time.NewTimer(h.options.WriteTimeout + 2*leaveTimeout)
	defer limit.Stop()
	select {
	case <-h.mu.drained:
		return nil
	case <-limit.C:
		return fmt.Errorf("live: %d streams did not end", h.open())
	}
}

// open is how many streams there are.
func (h *Hub) open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.mu.streams)
}

// admit lets a stream in, or says why not.
func (h *Hub) admit(s *stream) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.phase != running {
		return errNotRunning
	}
	if len(h.mu.streams) >= h.options.MaxStreams {
		return errTooMany
	}
	h.mu.streams[s] = struct{}{}
	return nil
}

// dismiss forgets a stream, which has left its subjects and closed its connection.
func (h *Hub) dismiss(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.mu.streams, s)
	if h.mu.phase == stopping && len(h.mu.streams) == 0 {
		close(h.mu.drained)
	}
}
