package stack

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kudos/bench/child"
)

// freezeTimeout bounds how long a process may take to stop all its threads once it was told to: microseconds, but for a
// thread that waits for a disk.
const freezeTimeout = 10 * time.Second

// freeze stops all threads of the child and returns when they stand: the signal alone returns while they still run, and
// a quick request would still be answered.
func freeze(p *child.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	deadline := time.NewTimer(freezeTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		// WSTOPPED alone does not touch the status at exit, which is the child's owner's to collect. Zero: nothing to
		// report yet.
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.PID(), &info, unix.WSTOPPED|unix.WNOHANG, nil)
		if err == nil && info.Signo != 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-tick.C:
		case <-p.Done():
			return p.Ended()
		case <-deadline.C:
			return fmt.Errorf("still runs %v after SIGSTOP", freezeTimeout)
		}
	}
}
