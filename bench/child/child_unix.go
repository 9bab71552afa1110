//go:build unix && !linux

package child

import "syscall"

// attributes put a child into its own process group. Only Linux can tie its life to ours.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
