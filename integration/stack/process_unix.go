//go:build unix && !linux

package stack

import "syscall"

// childAttributes puts a child into its own process group. Only Linux can tie its life to ours.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// freeze tells the child to stop. Whether it has yet, only Linux tells.
func (p *process) freeze() error { return p.os.Signal(syscall.SIGSTOP) }
