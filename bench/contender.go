// Package bench measures how fast, how soon and at what cost likes are counted. Every contender is given the same
// events in a real Kafka topic and must end with the same counts in MySQL, or its figures are not reported.
//
// A Plan measures contenders on the servers of a Site, and adds each run to a Report. `kudos bench` measures Kudos on
// servers that the user names; integration/cmd/bench starts servers of its own, and compares with other contenders.
//
// A run fills the topic with a Stream's events (load.go) and has the contender count them (drain.go). Then events come
// at a steady rate, with probes among them (latency.go), or kudos has lost its local state (recovery.go). accepting.go
// measures likes that come by HTTP.
package bench

import (
	"context"
	"time"
)

// StopTimeout is how long a contender's process may take to end after SIGTERM.
const StopTimeout = 60 * time.Second

// Contender is a way to count likes.
type Contender interface {
	// Name is short, and the same in every report.
	Name() string
	// About says in a sentence what it is and how it is tuned.
	About() string
	// Prepare makes what must be there before the topic is filled; the topic, too.
	Prepare(ctx context.Context, s *Servers, partitions int32) error
	// Start starts its process, whose files go to dir, and does not wait.
	Start(s *Servers, dir string) (Running, error)
}

// Running is a contender's process.
type Running interface {
	PID() int
	// FirstPoll waits until it asks Kafka for events, and returns when that was.
	FirstPoll(ctx context.Context) (time.Time, error)
	// Counted waits until so many events, which must be all that the topic has, are in the counts that are committed in
	// MySQL, and returns when that was.
	Counted(ctx context.Context, events int64) (time.Time, error)
	// Stop ends it in good order and returns what state it keeps to tell old likes from new ones.
	Stop() (State, error)
	// Kill ends it at once if it is still there.
	Kill()
}

// State is what a contender keeps to tell old likes from new ones.
type State struct {
	Bytes int64 `json:"bytes"`
	Pairs int64 `json:"pairs"`
}
