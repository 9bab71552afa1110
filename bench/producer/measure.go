// Package producer measures how many likes a running `kudos producer` accepts over HTTP, and its latency: for single
// likes and for batches it finds the highest sustainable rate, and the latency at half of it. It uses nothing but HTTP,
// so the producer may run anywhere. The accepted likes stay in its likes topic. search.go moves from one rate to the
// next, load.go holds one.
//
// The load is open loop: requests are due at a constant rate, whatever happens to earlier ones, and latency counts from
// the due time, so a stalling producer cannot hide the requests that it delays ("coordinated omission"). Load tools
// with this feature took more of the machine than the server they measure: vegeta 12.12 with the net/http client needs
// some 55 µs of CPU per request, the connections here 20; a server next to it on two cores answers 14,000 requests per
// second with vegeta and 26,000 with these.
package producer

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Options configure a measurement.
type Options struct {
	Addr string // the producer's HTTP address, host:port
	// Connections are shared by single likes; each has one request at a time. Requests due while all are busy wait, and
	// that time counts. BatchConnections are for batches; those above half of the producer's max_concurrent_batches get
	// 429, since they all have one address.
	Connections, BatchConnections int
	Posts                         uint64  // how many posts the likes spread over
	FirstUser                     uint64  // of the first like; each has another user, none of an earlier measurement
	BatchLines                    int     // likes per batch
	StartRate                     float64 // the first rate to try, in likes per second
	// StepFor is how long each rate is held during the search, HoldFor how long half of the highest rate is held.
	StepFor, HoldFor time.Duration
	LatencyLimit     time.Duration // the highest p99 at which a rate counts as sustained
	RequestTimeout   time.Duration // bounds one request; above the producer's ack_timeout, to receive its own error
	Log              *slog.Logger  // of each step
}

// DefaultOptions take some two and a half minutes. Set Addr and Log.
func DefaultOptions() Options {
	return Options{
		Connections: 256, BatchConnections: 32, Posts: 1000, FirstUser: 1, BatchLines: 1000,
		StartRate: 1000, StepFor: 5 * time.Second, HoldFor: 15 * time.Second,
		LatencyLimit: 250 * time.Millisecond, RequestTimeout: 15 * time.Second,
	}
}

// Result is the result of a measurement.
type Result struct {
	LatencyLimitMs float64  `json:"latency_limit_ms"` // the highest p99 at which a rate counts as sustained
	Single         Endpoint `json:"single"`
	Batch          Endpoint `json:"batch"`
}

// Endpoints returns Single and Batch.
func (r *Result) Endpoints() []*Endpoint { return []*Endpoint{&r.Single, &r.Batch} }

// Accepted is how many likes were accepted at all rates, without the warm-up.
func (r *Result) Accepted() (likes int64) {
	for _, e := range r.Endpoints() {
		likes += e.Half.Accepted
		for _, step := range e.Steps {
			likes += step.Accepted
		}
	}
	return likes
}

// Endpoint is the result for one endpoint.
type Endpoint struct {
	LikesPerRequest int    `json:"likes_per_request"` // 1, or the lines of a batch
	Connections     int    `json:"connections"`       // that the requests shared
	Capacity        Step   `json:"capacity"`          // the highest sustained: all likes accepted, p99 within the limit
	Half            Step   `json:"half"`              // half of that rate, held for longer
	Steps           []Step `json:"steps"`             // all rates tried, in order
}

// Step is one rate, held for a while. Latencies are per request, from its due time.
type Step struct {
	// PlannedLikesPerSecond is the target; LikesPerSecond are the likes accepted, over the time to the last response.
	PlannedLikesPerSecond float64 `json:"planned_likes_per_second"`
	LikesPerSecond        float64 `json:"likes_per_second"`
	Carried               bool    `json:"carried"`

	Requests int   `json:"requests"`
	Accepted int64 `json:"accepted"` // likes
	// Refused counts 429 responses, Failed all others than 202 and missing ones. FirstFailure is the first of both.
	Refused      int    `json:"refused"`
	Failed       int    `json:"failed"`
	FirstFailure string `json:"first_failure,omitempty"`
	Unsent       int    `json:"unsent"` // requests that were dropped because they were late by several times the limit

	P50Ms  float64 `json:"p50_ms"`
	P99Ms  float64 `json:"p99_ms"`
	P999Ms float64 `json:"p999_ms"`
	MaxMs  float64 `json:"max_ms"`
}

// Measure finds the highest sustained rate and the latency at half of it: for single likes first, then for batches.
func Measure(ctx context.Context, o Options) (*Result, error) {
	result := &Result{LatencyLimitMs: milliseconds(o.LatencyLimit)}
	likes := &likes{next: o.FirstUser, posts: o.Posts}
	for _, e := range []struct {
		name               string
		lines, connections int
		into               *Endpoint
	}{{"single", 0, o.Connections, &result.Single}, {"batch", o.BatchLines, o.BatchConnections, &result.Batch}} {
		l := &load{options: &o, likes: likes, lines: e.lines, connections: e.connections}
		e.into.LikesPerRequest, e.into.Connections = l.likesPerRequest(), e.connections
		s := search{options: &o, log: o.Log.With("endpoint", e.name), at: l.hold, found: e.into}
		if err := s.run(ctx); err != nil {
			return nil, fmt.Errorf("measuring the producer at %s, %s endpoint: %w", o.Addr, e.name, err)
		}
	}
	return result, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Percentiles sorts times and returns percentiles in milliseconds, 0 if there are none.
func Percentiles(times []time.Duration) (p50, p99, p999, longest float64) {
	slices.Sort(times)
	of := func(perMille int) float64 { return milliseconds(percentile(times, perMille)) }
	return of(500), of(990), of(999), of(1000)
}

// percentile is by nearest rank: the smallest time that at least that share does not exceed; 0 if there are none.
func percentile(sorted []time.Duration, perMille int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(1, (len(sorted)*perMille+999)/1000)-1]
}
