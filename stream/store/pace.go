package store

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// pace is the file system of one open db. A compaction rewrites up to the whole store, for seconds, and events wait
// while it takes the CPU that their partition needs. So compactions pause after each write: those of all stores take a
// third of a core together. They hurry while many files wait for them, and end when the db is closed.
type pace struct {
	vfs.FS
	hurry, stop atomic.Bool
}

var compacting atomic.Int32 // compactions of this process, whose cores they share

const (
	compactionWrites = "pebble-compaction" // Pebble's name for them
	pausing          = 3                   // a compaction alone takes this many times as long
	longestPause     = 100 * time.Millisecond
)

var errStopped = errors.New("a compaction ended because its store is being closed")

func (p *pace) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.Create(name, category)
	if err != nil || category != compactionWrites {
		return f, err
	}
	compacting.Add(1)
	return &pacedFile{f, p, time.Now()}, nil
}

type pacedFile struct {
	vfs.File
	pace *pace
	last time.Time // when the previous write ended
}

func (f *pacedFile) Write(b []byte) (n int, err error) {
	if f.pace.stop.Load() {
		return 0, errStopped
	}
	if n, err = f.File.Write(b); err == nil && !f.pace.hurry.Load() {
		times := pausing*time.Duration(compacting.Load()) - 1
		time.Sleep(min(time.Since(f.last)*times, longestPause))
	}
	f.last = time.Now()
	return n, err
}

func (f *pacedFile) Close() error {
	compacting.Add(-1)
	return f.File.Close()
}
