package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
)

// heldDisk holds the first write of a compaction until release, and counts them.
type heldDisk struct {
	vfs.FS
	held, release chan struct{}
	once          sync.Once
	writes        atomic.Int32
}

type heldFile struct {
	vfs.File
	disk *heldDisk
}

func (d *heldDisk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, category)
	if category == compactionWrites {
		f = heldFile{f, d}
	}
	return f, err
}

func (f heldFile) Write(b []byte) (int, error) {
	f.disk.writes.Add(1)
	f.disk.once.Do(func() { close(f.disk.held) })
	<-f.disk.release
	return f.File.Write(b)
}

// A partition is handed over at once, however much is being compacted, and nothing is lost by it.
func TestCloseEndsCompactions(t *testing.T) {
	t.Parallel()
	disk := &heldDisk{FS: vfs.NewMem(), held: make(chan struct{}), release: make(chan struct{})}
	s := bufferedStore(t, disk, "state")
	value, keys := make([]byte, 100<<10), []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	spill := func(offset int) {
		w := s.NewWrite()
		for i, key := range keys {
			r := rand.NewChaCha8([32]byte{byte(offset), byte(i)}) // nothing that can be compressed
			_, _ = r.Read(value)
			require.NoError(t, w.Set([]byte(key), value))
		}
		require.NoError(t, w.Commit(int64(offset)))
		require.NoError(t, s.spillAll())
	}
	offset := 0
	for compacting := false; !compacting; offset++ {
		spill(offset)
		select {
		case <-disk.held:
			compacting = true
		default:
			require.Less(t, offset, 3*l0Compact, "nothing is compacted")
		}
	}
	closed, pace, background := make(chan error), s.pace, s.background
	go func() { closed <- s.Close() }()
	testkit.WaitFor(t, "closing", pace.stop.Load)
	close(disk.release)
	require.NoError(t, <-closed)
	require.NoError(t, background.err(), "this is not a failure")
	require.EqualValues(t, 1, disk.writes.Load(), "of a store of several MiB")

	s = bufferedStore(t, disk, "state")
	requireOffset(t, s, int64(offset-1), "closed")
	require.Len(t, lookup(t, s, keys...), len(keys))
	for ; disk.writes.Load() < 3; offset++ {
		require.Less(t, offset, 6*l0Compact, "nothing is compacted any more")
		spill(offset)
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, s.Close())
}

// A compaction pauses as long as it worked, but not for long, and not at all if many files wait for it.
func TestPace(t *testing.T) {
	t.Parallel()
	p := &pace{FS: vfs.NewMem()}
	var paused []time.Duration
	p.sleep = func(d time.Duration) { paused = append(paused, d) }
	write := func(name string, category vfs.DiskWriteCategory, worked time.Duration) {
		f, err := p.Create(name, category)
		require.NoError(t, err)
		if f, ok := f.(*pacedFile); ok {
			f.last = time.Now().Add(-worked)
		}
		for range 2 {
			n, err := f.Write(bytes.Repeat([]byte("x"), 10))
			require.NoError(t, err)
			require.Equal(t, 10, n)
		}
		if f, ok := f.(*pacedFile); ok {
			require.Less(t, time.Since(f.last), time.Minute, "the next pause is as long as the next write takes")
		}
		require.NoError(t, f.Close())
		info, err := p.Stat(name)
		require.NoError(t, err)
		require.EqualValues(t, 20, info.Size(), name)
	}
	write("flush", "pebble-memtable-flush", time.Hour)
	require.Empty(t, paused)
	for i, worked := range []time.Duration{10 * time.Millisecond, time.Hour} {
		paused = nil
		write(fmt.Sprint(i), compactionWrites, worked)
		require.Len(t, paused, 2)
		require.GreaterOrEqual(t, paused[0], min(worked, longestPause))
		require.LessOrEqual(t, paused[0], longestPause)
	}
	paused = nil
	p.hurry.Store(true)
	write("hurry", compactionWrites, time.Hour)
	require.Empty(t, paused)
}
