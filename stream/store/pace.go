package store

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// pace is the file system of one open db. A compaction rewrites up to the whole store, for seconds, and events wait
// while it takes the CPU that their partition needs. So after each write a compaction pauses for as long as that took:
// the busier the machine, the longer. It hurries while many files wait for it, and it ends when the db is closed.
type pace struct {
	vfs.FS
	hurry, stop atomic.Bool
	sleep       func(time.Duration)
}

func newPace(fs vfs.FS) *pace { return &pace{FS: fs, sleep: time.Sleep} }

const (
	compactionWrites = "pebble-compaction" // Pebble's name for them
	longestPause     = 50 * time.Millisecond
)

var errStopped = errors.New("a compaction ended because its store is being closed")

func (p *pace) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.FS.Create(name, category)
	if err != nil || category != compactionWrites {
		return f, err
	}
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
		f.pace.sleep(min(time.Since(f.last), longestPause))
	}
	f.last = time.Now()
	return n, err
}
