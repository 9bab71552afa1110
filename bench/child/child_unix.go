//go:build unix

package child

import (
	"reflect"
	"syscall"
)

// attributes puts a child into its own process group: Ctrl-C then reaches only this process, which decides in which
// order children stop. Where supported (Linux, FreeBSD), the system kills a child when the thread that started it ends.
func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if signal := reflect.ValueOf(a).Elem().FieldByName("Pdeathsig"); signal.IsValid() {
		signal.SetInt(int64(syscall.SIGKILL))
	}
	return a
}

// killGroup kills the process group that a child leads. The group may be gone already.
func killGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
