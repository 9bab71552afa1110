package stack

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// freezeTimeout bounds how long a process may take to stop all its threads once it was told to: microseconds, but for a
// thread that waits for a disk.
const freezeTimeout = 10 * time.Second

// childAttributes puts a child into its own process group, so that Ctrl-C on the terminal reaches only us and we decide
// in which order things stop, and has the kernel kill it when the thread that started it ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// freeze stops all threads of the child and returns when they stand: the signal alone returns while they still run, and
// a quick request would still be answered.
func (p *process) freeze() error {
	if err := p.os.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	deadline := time.NewTimer(freezeTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		// WSTOPPED alone does not touch the status at exit, which is own's to collect. Zero: nothing to report yet.
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.os.Pid, &info, unix.WSTOPPED|unix.WNOHANG, nil)
		if err == nil && info.Signo != 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-tick.C:
		case <-p.done:
			return exitError(p)
		case <-deadline.C:
			return fmt.Errorf("still runs %v after SIGSTOP", freezeTimeout)
		}
	}
}
