//go:build !unix

package child

import "syscall"

// attributes have nothing to say here: a child of a process that is killed stays.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// killGroup has no group to kill here, only the child itself.
func killGroup(int) {}
