//go:build !unix

package child

import "syscall"

// attributes sets nothing here: a child whose parent is killed keeps running.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// killGroup does nothing here: there are no process groups, and Kill kills the child itself.
func killGroup(int) {}
