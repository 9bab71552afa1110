// Package bench measures throughput, latency and cost of counting likes. Every contender gets the same events in a real
// Kafka topic and must end with the same counts in MySQL, or its figures are not reported.
//
// A Plan measures contenders on the servers of a Site and adds each run to a Report. `kudos bench` measures Kudos on
// servers that the user names; integration/cmd/bench starts its own servers and compares other contenders.
//
// A run fills the topic with a Stream's events and has the contender count them (drain.go). Then it sends events at a
// steady rate, with probes among them (latency.go), or restarts kudos without its local state (kudos.go).
// accepting.go measures likes sent over HTTP.
package bench

import (
	"context"
	"time"
)

// StopTimeout is how long a contender's process may take to end after SIGTERM.
const StopTimeout = 60 * time.Second

// Contender is a system that counts likes.
type Contender interface {
	Name() string  // is short and the same in every report
	About() string // says in one sentence what it is and how it is tuned
	// Prepare creates whatever must exist before the topic is filled, including the topic.
	Prepare(ctx context.Context, s *Servers, partitions int32) error
	// Start starts the contender's process, with its files in dir, and does not wait for it.
	Start(s *Servers, dir string) (Running, error)
}

// Running is a contender's process.
type Running interface {
	PID() int
	// FirstPoll waits until the process polls Kafka for events, and returns when it did.
	FirstPoll(ctx context.Context) (time.Time, error)
	// Counted returns when MySQL had committed the counts of that many events, which must be all in the topic.
	Counted(ctx context.Context, events int64) (time.Time, error)
	Stop() (State, error) // shuts the process down gracefully and returns the size of its deduplication state
	Kill()                // ends it at once if it still runs
}

// State is the size of what a contender keeps to detect duplicate likes.
type State struct {
	Bytes int64 `json:"bytes"`
	Pairs int64 `json:"pairs"`
}
