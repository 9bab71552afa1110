package chaos

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kudos/integration/stack"
)

// unit is a process that faults strike. Who disturbs it holds it for that time, so that two faults do not undo each
// other's work; a process that ends while nobody holds it has ended by itself.
type unit struct {
	*stack.Server
	state string // the folder of a processor's local state
	disk  *disk  // that it is on; nil for a guest, and where this machine cannot make one
	held  sync.Mutex
	exits atomic.Int64 // ends that nobody caused
	// begin is where the log of the process that runs now begins.
	begin atomic.Int64
}

// Start starts the process.
func (u *unit) Start(ctx context.Context) error {
	u.begin.Store(u.logSize())
	return u.Server.Start(ctx)
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
	u.exits.Add(1)
	return true, u.Start(ctx)
}

// assigned is what a processor logs when it gets partitions.
const assigned = `"msg":"partitions assigned","group":"latest-like-action"`

// atWork tells whether a processor has had partitions since it was started.
func (u *unit) atWork() bool { return strings.Contains(u.logSince(u.begin.Load()), assigned) }

// logSize is how long the log is by now: logSince reads what came after.
func (u *unit) logSize() int64 {
	info, err := os.Stat(u.LogPath())
	if err != nil {
		return 0
	}
	return info.Size()
}

func (u *unit) logSince(size int64) string {
	file, err := os.Open(u.LogPath())
	if err != nil {
		return ""
	}
	defer file.Close()
	text, _ := io.ReadAll(io.NewSectionReader(file, size, 1<<40))
	return string(text)
}

// tells waits until the log has, behind a place, one of some texts.
func (u *unit) tells(ctx context.Context, since int64, within time.Duration, texts ...string) error {
	return waitUntil(ctx, within, "the log of "+u.String()+" to say: "+strings.Join(texts, ", or: "), func() bool {
		have := u.logSince(since)
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(have, text) })
	})
}
