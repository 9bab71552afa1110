package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Contender is a way to count likes.
type Contender interface {
	// Name is short, and the same in every report.
	Name() string
	// About says in a sentence what it is and how it is tuned.
	About() string
	// NeedsRedis: its servers include Redis.
	NeedsRedis() bool
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

// news is what a process has told so far. Waiters look again at each line.
type news struct {
	process *process
	mu      struct {
		sync.Mutex
		changed chan struct{} // closed at the next news, and replaced
	}
}

// init makes the process, which does not run yet.
func (n *news) init(name, dir string) {
	n.process, n.mu.changed = newProcess(name, dir), make(chan struct{})
}

// tell changes what is known.
func (n *news) tell(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
	close(n.mu.changed)
	n.mu.changed = make(chan struct{})
}

// wait returns when known says so, under the lock.
func (n *news) wait(ctx context.Context, what string, known func() bool) error {
	for {
		n.mu.Lock()
		ok, changed := known(), n.mu.changed
		n.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-n.process.Done():
			n.mu.Lock()
			ok := known() // its last lines may have come with its end
			n.mu.Unlock()
			if ok {
				return nil
			}
			return n.process.ended()
		case <-ctx.Done():
			return n.gaveUp(ctx, what)
		}
	}
}

// gaveUp is the error of a wait that took too long.
func (n *news) gaveUp(ctx context.Context, what string) error {
	err := context.Cause(ctx)
	if errors.Is(err, context.Canceled) {
		return err // somebody wanted it to end
	}
	return fmt.Errorf("waiting for %s of %s: %w\n%s", what, n.process.name, err, n.process.tail())
}

func (n *news) PID() int { return n.process.PID() }
func (n *news) Kill()    { n.process.Kill() }
