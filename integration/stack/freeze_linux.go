package stack

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kudos/bench/child"
)

// freezeTimeout bounds how long a process takes to stop all its threads: microseconds, unless one waits for a disk.
const freezeTimeout = 10 * time.Second

// freeze returns when all threads have stopped; right after the signal, the child could still answer a fast request.
func freeze(p *child.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	tick, deadline := time.Tick(time.Millisecond), time.After(freezeTimeout)
	for {
		// With WSTOPPED alone, Waitid leaves the exit status to the child's owner. Zero: nothing to report yet.
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.PID(), &info, unix.WSTOPPED|unix.WNOHANG, nil)
		if err == nil && info.Signo != 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-tick:
		case <-p.Done():
			return p.Ended()
		case <-deadline:
			return fmt.Errorf("still running %v after SIGSTOP", freezeTimeout)
		}
	}
}
