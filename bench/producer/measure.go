// Package producer measures how many likes a running `kudos producer` takes over HTTP, and how long each waits: for
// single likes and for batches the highest rate that the producer carries, and the times at half of it. It only asks by
// HTTP, so the producer may be anywhere; what it accepts is in its likes topic afterwards.
//
// search.go goes from one rate to the next, load.go holds one.
//
// The load is open loop: requests are due at a constant rate, whatever became of those before, and each one's time runs
// from when it was due, so a producer that stalls cannot hide the requests that a stall delays ("coordinated
// omission"). Load tools that could do this took more of the machine than what they were to measure: vegeta 12.12 with
// net/http's client needs some 55 µs of CPU a request, the connections here 20, and a server next to it on two cores
// answers 14,000 requests a second to the one and 26,000 to the other.
package producer

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Options say what to measure.
type Options struct {
	// Addr is the producer's HTTP address, host:port.
	Addr string
	// Connections that single likes share; one carries one request at a time. Requests that are due while all are busy
	// wait, which counts. BatchConnections are for batches: above max_concurrent_batches they would be refused.
	Connections, BatchConnections int
	// Posts that the likes spread over.
	Posts uint64
	// FirstUser is the user of the first like; each has another, so that none repeats one of an earlier measurement.
	FirstUser uint64
	// BatchLines is how many likes a batch has.
	BatchLines int
	// StartRate is the first rate that is tried, in likes a second.
	StartRate float64
	// StepFor is how long a rate is held while the highest is looked for; HoldFor how long half of that is.
	StepFor, HoldFor time.Duration
	// LatencyLimit is the p99 up to which a rate is carried.
	LatencyLimit time.Duration
	// RequestTimeout bounds one request. Above the producer's ack_timeout, so that the producer's own answer is heard.
	RequestTimeout time.Duration
	Log            *slog.Logger // of each step
}

// DefaultOptions take some two and a half minutes. Set Addr and Log.
func DefaultOptions() Options {
	return Options{
		Connections: 256, BatchConnections: 32,
		Posts: 1000, FirstUser: 1, BatchLines: 1000,
		StartRate: 1000, StepFor: 5 * time.Second, HoldFor: 15 * time.Second,
		LatencyLimit: 250 * time.Millisecond, RequestTimeout: 15 * time.Second,
	}
}

// Result is what came out.
type Result struct {
	// LatencyLimitMs is the p99 up to which a rate was carried.
	LatencyLimitMs float64 `json:"latency_limit_ms"`

	Single Endpoint `json:"single"`
	Batch  Endpoint `json:"batch"`
}

// Endpoints are Single and Batch.
func (r *Result) Endpoints() []*Endpoint { return []*Endpoint{&r.Single, &r.Batch} }

// Accepted is how many likes were accepted, all rates together but for the warm-up.
func (r *Result) Accepted() (likes int64) {
	for _, e := range r.Endpoints() {
		likes += e.Half.Accepted
		for _, step := range e.Steps {
			likes += step.Accepted
		}
	}
	return likes
}

// Endpoint is what came out for one endpoint.
type Endpoint struct {
	// LikesPerRequest is 1, or the lines of a batch.
	LikesPerRequest int `json:"likes_per_request"`
	// Connections that the requests shared.
	Connections int `json:"connections"`
	// Capacity is the highest rate that was carried: all likes accepted, p99 within the limit.
	Capacity Step `json:"capacity"`
	// Half is half of that, held for longer.
	Half Step `json:"half"`
	// Steps are all rates that were tried, in order.
	Steps []Step `json:"steps"`
}

// Step is one rate, held for a while. Times are those of requests, from when they were due.
type Step struct {
	// PlannedLikesPerSecond is the rate; LikesPerSecond how many were accepted, until the last answer.
	PlannedLikesPerSecond float64 `json:"planned_likes_per_second"`
	LikesPerSecond        float64 `json:"likes_per_second"`
	Carried               bool    `json:"carried"`

	Requests int   `json:"requests"`
	Accepted int64 `json:"accepted"` // likes
	// Refused are requests answered 429, Failed those with no answer or another than 202. FirstFailure is of both.
	Refused      int    `json:"refused"`
	Failed       int    `json:"failed"`
	FirstFailure string `json:"first_failure,omitempty"`
	// Unsent are requests that were not sent any more, because by then they were late by several times the limit.
	Unsent int `json:"unsent"`

	P50Ms  float64 `json:"p50_ms"`
	P99Ms  float64 `json:"p99_ms"`
	P999Ms float64 `json:"p999_ms"`
	MaxMs  float64 `json:"max_ms"`
}

// Measure finds what the producer carries, and its times at half of that: single likes first, then batches.
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

// Percentiles sorts times, and returns percentiles of them in milliseconds. 0 if there are none.
func Percentiles(times []time.Duration) (p50, p99, p999, longest float64) {
	slices.Sort(times)
	of := func(perMille int) float64 { return milliseconds(percentile(times, perMille)) }
	return of(500), of(990), of(999), of(1000)
}

// percentile of sorted times by nearest rank: the smallest that at least so many of them do not exceed. 0 for none.
func percentile(sorted []time.Duration, perMille int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*perMille + 999) / 1000
	return sorted[max(rank, 1)-1]
}
