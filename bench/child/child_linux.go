package child

import "syscall"

// attributes put a child into its own process group, so that Ctrl-C on the terminal reaches only us and we decide in
// which order things stop, and have the kernel kill it when the thread that started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
