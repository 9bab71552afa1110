//go:build unix && !linux

package stack

import (
	"syscall"

	"kudos/bench/child"
)

// freeze stops the child without waiting for it: only Linux reports when it has stopped.
func freeze(p *child.Process) error { return p.Signal(syscall.SIGSTOP) }
