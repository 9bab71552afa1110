package chaos

import (
	"context"
	"os"
	"sync"

	"kudos/integration/stack"
)

// unit is a process that faults strike. Who disturbs it holds it for that time, so that two faults do not undo each
// other's work; a process that ends while nobody holds it has ended by itself.
type unit struct {
	*stack.Server
	held sync.Mutex
	// exits are the ends that nobody caused: held must be locked.
	exits int
}

// restore leaves the unit running, whatever a fault did to it.
func (u *unit) restore(ctx context.Context) error {
	if u.Running() {
		return u.Resume()
	}
	return u.Start(ctx)
}

// lookAfter starts the process again if it ended by itself, as a supervisor would.
func (u *unit) lookAfter(ctx context.Context) (exited bool, err error) {
	if !u.held.TryLock() {
		return false, nil
	}
	defer u.held.Unlock()
	if u.Running() || ctx.Err() != nil {
		return false, nil
	}
	u.exits++
	return true, u.Start(ctx)
}

// logSize is how long the log is by now: logSince reads what came after.
func (u *unit) logSize() int64 {
	info, err := os.Stat(u.LogPath())
	if err != nil {
		return 0
	}
	return info.Size()
}

func (u *unit) logSince(size int64) string {
	text, err := os.ReadFile(u.LogPath())
	if err != nil || int64(len(text)) < size {
		return ""
	}
	return string(text[size:])
}
