//go:build unix && !linux

package stack

import (
	"syscall"

	"kudos/bench/child"
)

// freeze tells the child to stop. Whether it has yet, only Linux tells.
func freeze(p *child.Process) error { return p.Signal(syscall.SIGSTOP) }
