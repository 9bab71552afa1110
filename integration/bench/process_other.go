//go:build !linux

package bench

import "syscall"

// childAttributes has nothing to say here: a child of a process that is killed stays.
func childAttributes() *syscall.SysProcAttr { return nil }
