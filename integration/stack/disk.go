package stack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// Disk is an ext4 file system of its own that can lose power: then it has what was synced, and of the rest what the
// kernel happened to have written. It requires root on Linux.
type Disk struct {
	dir     string
	mounted bool
	end     func() // unmounts it; so does the end of this process, however that happens
}

// NewDisk mounts a new, empty disk on a new or empty directory, with its image next to it.
func NewDisk(dir string) (*Disk, error) {
	d := &Disk{dir: dir, mounted: true}
	// Kafka would take lost+found for a partition.
	if err := d.sh(`mkdir -p "$0"; mkfs.ext4 -q "$0.img" 1G; mount -o loop "$0.img" "$0"; rmdir "$0"/*`); err != nil {
		return nil, err
	}
	guard := exec.Command("sh", "-c", `trap "" INT; cat; umount -l "$0"`, dir) // its input ends with this process
	in, _ := guard.StdinPipe()                                                 // fails only if it is called twice
	d.end = sync.OnceFunc(func() { _, _ = in.Close(), guard.Wait() })          // it may be unmounted already
	return d, guard.Start()
}

func (d *Disk) mount() error {
	if d == nil || d.mounted {
		return nil
	}
	err := d.sh(`mount -o loop "$0.img" "$0"`) // ext4 recovers its journal
	d.mounted = err == nil
	return err
}

// LosePower cuts the power of servers with own disks at the same time: all writes end at once, and what is in memory,
// ext4's journal too, is gone. Start mounts the disks again.
func LosePower(servers ...*Server) (err error) {
	const ext4Shutdown, noLogFlush = 0x8004587d, 2
	for _, s := range servers {
		root, failed := os.Open(s.disk.dir)
		if failed == nil {
			failed = errors.Join(unix.IoctlSetPointerInt(int(root.Fd()), ext4Shutdown, noLogFlush), root.Close())
		}
		err = errors.Join(err, failed)
	}
	for _, s := range servers {
		if p := s.latest.Load(); p != nil {
			p.Kill() // it may have ended by itself when it could not write
		}
		s.disk.mounted = false
		// While a copy of the mount is in another mount namespace, another mount would get the dead file system again.
		err = errors.Join(err, s.disk.sh(`umount "$0"
			timeout 60 sh -c 'while losetup -j "$0" | grep -q .; do sleep 0.1; done' "$0.img"`))
	}
	return err
}

// Close unmounts the disk, even if it is in use. A nil disk is none.
func (d *Disk) Close() error {
	if d == nil {
		return nil
	}
	d.end()
	return os.RemoveAll(d.dir + ".img")
}

func (d *Disk) sh(script string) error {
	if out, err := exec.Command("sh", "-ec", "PATH=$PATH:/usr/sbin; "+script, d.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", script, err, out)
	}
	return nil
}

func missingDisk() error {
	if os.Geteuid() != 0 || unix.Access("/dev/loop-control", unix.W_OK) != nil {
		return errors.New("a disk that can lose power requires root and Linux's loop devices")
	}
	_, err := find("mkfs.ext4", "e2fsprogs")
	return err
}
