//go:build unix

package child

import "syscall"

// killGroup kills all processes of the group that a child leads; they may be gone.
func killGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
