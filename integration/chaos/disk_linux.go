package chaos

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// disk is a small in-memory file system for a process's state, so that it can be full. It is not mounted anywhere:
// processes reach it through this process's descriptor, and it disappears when this process ends, however that happens.
type disk struct{ root *os.File }

// newDisk creates a disk. It requires root.
func newDisk(bytes int64) (*disk, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a file system for the state: %w", err)
	}
	defer unix.Close(fs)
	err = unix.FsconfigSetString(fs, "size", fmt.Sprint(bytes))
	if err == nil {
		err = unix.FsconfigCreate(fs)
	}
	if err != nil {
		return nil, fmt.Errorf("create a file system for the state: %w", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mount a file system for the state: %w", err)
	}
	return &disk{root: os.NewFile(uintptr(mount), "state disk")}, nil
}

func (d *disk) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), d.root.Fd()) }
func (d *disk) close() error { return d.root.Close() }
