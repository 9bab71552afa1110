package chaos

import (
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kudos/integration/stack"
)

// unit is a process that faults strike. A fault locks it for its duration, so that two faults do not undo each other's
// work. A process that ends while the lock is free has exited by itself.
type unit struct {
	*stack.Server
	other *stack.Server // of the other version, for an upgrade
	role  string        // what it is: processor, reader, …
	admin string        // host:port of its admin server
	base  string        // of a reader, http://host:port; "" for others
	state string        // the directory of its local state, or of the archive
	hit   func()        // is called when a processor is killed, stopped or paused; nil for others
	disk  *disk         // for the state; nil for guests, and if this machine cannot create one
	held  sync.Mutex
	exits atomic.Int64 // exits without a fault
	begin atomic.Int64 // where the current process's log begins
}

func (u *unit) Start(ctx context.Context) error {
	u.begin.Store(u.logSize())
	return u.Server.Start(ctx)
}

func (u *unit) Kill() error  { return u.strike(u.Server.Kill) }
func (u *unit) Stop() error  { return u.strike(u.Server.Stop) }
func (u *unit) Pause() error { return u.strike(u.Server.Pause) }

func (u *unit) strike(by func() error) error {
	if u.hit != nil {
		u.hit()
	}
	return by()
}

func (u *unit) restore(ctx context.Context) error {
	if u.Running() {
		return u.Resume()
	}
	return u.Start(ctx)
}

// lookAfter restarts the process if it exited by itself, as a supervisor would.
func (u *unit) lookAfter(ctx context.Context) (exited bool, err error) {
	if !u.held.TryLock() {
		return false, nil
	}
	defer u.held.Unlock()
	if u.Running() || ctx.Err() != nil {
		return false, nil
	}
	u.exits.Add(1)
	return true, u.strike(func() error { return u.Start(ctx) })
}

// assigned is what a processor logs when it gets partitions.
const assigned = `"event":"partitions_assigned","group":"latest-like-action"`

func (u *unit) atWork() bool {
	if u.role == "processor" {
		return strings.Contains(u.logSince(u.begin.Load()), assigned)
	}
	status, _ := u.get("/readyz")
	return status == http.StatusOK
}

func (u *unit) awaitWork(ctx context.Context, within time.Duration) error {
	return waitUntil(ctx, within, u.String()+" to work", u.atWork)
}

// get asks the admin server; the status is 0 without an answer.
func (u *unit) get(path string) (status int, text string) {
	resp, err := (&http.Client{Timeout: 5 * time.Second}).Get("http://" + u.admin + path)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

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

func (u *unit) tells(ctx context.Context, since int64, within time.Duration, texts ...string) error {
	return waitUntil(ctx, within, "the log of "+u.String()+" to contain: "+strings.Join(texts, ", or: "), func() bool {
		have := u.logSince(since)
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(have, text) })
	})
}
