//go:build unix

package child

import (
	"reflect"
	"syscall"
)

// attributes put a child into its own process group, so that Ctrl-C reaches only us and we decide in which order things
// stop. Where the system can (Linux, FreeBSD), it kills the child when the thread that started it ends.
func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if signal := reflect.ValueOf(a).Elem().FieldByName("Pdeathsig"); signal.IsValid() {
		signal.SetInt(int64(syscall.SIGKILL))
	}
	return a
}

// killGroup kills all processes of the group that a child leads; they may be gone.
func killGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
