// Package crashdisk provides an in-memory disk for tests that can be cloned in a state that a crash would leave.
package crashdisk

import (
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Disk is Pebble's in-memory file system, with a workaround for a deadlock in v2.1.7 (fixed by
// github.com/cockroachdb/pebble/pull/5993, not released yet): Link, ReuseForWrite and Lock take the same read lock
// twice, and deadlock if CrashClone requests the write lock in between. So Disk serializes these calls.
type Disk struct {
	*vfs.MemFS
	mu sync.Mutex
}

// New returns an empty disk.
func New() *Disk { return &Disk{MemFS: vfs.NewCrashableMem()} }

// CrashClone returns a state that a crash at this moment may leave.
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
