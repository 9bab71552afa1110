// Package crashdisk has a disk in memory, for tests, that can be looked at as a crash would leave it.
package crashdisk

import (
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Disk is Pebble's file system in memory, kept from a deadlock of v2.1.7 (mended by
// github.com/cockroachdb/pebble/pull/5993, which no release has): Link, ReuseForWrite and
// Lock take the same read lock twice, and wait for themselves if CrashClone asks for the
// write lock in between. So none of them begins while another one of them runs.
type Disk struct {
	*vfs.MemFS
	mu sync.Mutex
}

// New returns an empty disk.
func New() *Disk { return &Disk{MemFS: vfs.NewCrashableMem()} }

// CrashClone returns what a crash at this moment may leave.
func (d *Disk) CrashClone(cfg vfs.CrashCloneCfg) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &Disk{MemFS: d.MemFS.CrashClone(cfg)}
}

// Link implements vfs.FS.
func (d *Disk) Link(oldname, newname string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.MemFS.Link(oldname, newname)
}

// ReuseForWrite implements vfs.FS.
func (d *Disk) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.MemFS.ReuseForWrite(oldname, newname, category)
}

// Lock implements vfs.FS.
func (d *Disk) Lock(name string) (io.Closer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.MemFS.Lock(name)
}
