//go:build linux

// Command contain runs another program like a container of an image: in a root that is read-only except for one
// directory, as an unprivileged user, with no capabilities and no way to gain any. It must start as root in its own
// mount namespace (CLONE_NEWNS). Its only argument describes what to run, as JSON:
//
//	contain '{"Root": "/tmp/image", "WorkingDir": "/var/lib/kudos", "Volume": "/tmp/volume",
//	          "UID": 65532, "GID": 65532, "Args": ["/usr/local/bin/kudos", "version"]}'
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

type container struct {
	Root, WorkingDir string
	Volume           string // writable, mounted at WorkingDir; empty: nothing is writable
	UID, GID         int
	Args, Env        []string
}

func main() {
	var c container
	err := json.Unmarshal([]byte(os.Args[1]), &c)
	if err == nil {
		err = c.become()
	}
	fmt.Fprintln(os.Stderr, "contain:", err)
	os.Exit(125)
}

// become replaces this process with the program; it returns only on an error.
func (c *container) become() error {
	runtime.LockOSThread() // the settings are per thread, and the same thread must start the program
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"keep mounts private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mount the root", func() error { return unix.Mount(c.Root, c.Root, "", unix.MS_BIND, "") }},
		{"make the root read-only", func() error {
			return unix.Mount("", c.Root, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
		}},
		{"mount the volume", func() error {
			if c.Volume == "" {
				return nil
			}
			return unix.Mount(c.Volume, filepath.Join(c.Root, c.WorkingDir), "", unix.MS_BIND, "")
		}},
		{"enter the root", func() error { return unix.Chdir(c.Root) }},
		// This mounts the old root over the new one, and the next step unmounts it with all that is mounted in it: a
		// copy of a mount keeps a file system in use that is unmounted elsewhere.
		{"change the root", func() error { return unix.PivotRoot(".", ".") }},
		{"unmount the old root", func() error { return unix.Unmount(".", unix.MNT_DETACH) }},
		{"change the directory", func() error { return unix.Chdir(c.WorkingDir) }},
		{"set no_new_privs", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
		{"drop all groups", func() error { return syscall.Setgroups(nil) }},
		{"change the group", func() error { return syscall.Setgid(c.GID) }},
		{"change the user", func() error { return syscall.Setuid(c.UID) }},
		// The change of user has cleared this setting.
		{"set the parent death signal", func() error {
			return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
		}},
		{"start the program", func() error { return syscall.Exec(c.Args[0], c.Args, c.Env) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}
