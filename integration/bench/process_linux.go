package bench

import "syscall"

// childAttributes has the kernel end a child when the thread that started it ends, as it does with this process. Its own
// process group keeps Ctrl-C on the terminal from it: we end it when we have what we need.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
