package store

import (
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
)

// A partition is handed over at once, however much is being compacted, and nothing is lost by it.
func TestCloseEndsCompactions(t *testing.T) {
	t.Parallel()
	var writes atomic.Int32 // of compactions; the first one waits
	release := make(chan struct{})
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileWrite && filepath.Ext(op.Path) == ".sst" {
			writes.Add(1)
			<-release
		}
		return nil
	}))
	s := bufferedStore(t, disk, "state")
	offset, keys, value := int64(-1), []string{"a", "b", "c", "d", "e", "f", "g", "h"}, make([]byte, 100<<10)
	spill := func() {
		offset++
		require.Less(t, offset, int64(6*l0Compact), "nothing is compacted")
		w := s.NewWrite()
		for i, key := range keys {
			_, _ = rand.NewChaCha8([32]byte{byte(offset), byte(i)}).Read(value) // nothing that can be compressed
			require.NoError(t, w.Set([]byte(key), value))
		}
		require.NoError(t, w.Commit(offset))
		require.NoError(t, s.spillAll())
	}
	for writes.Load() == 0 {
		spill()
	}
	closed, pace, background := make(chan error), s.pace, s.background
	go func() { closed <- s.Close() }()
	testkit.WaitFor(t, "closing", pace.stop.Load)
	close(release)
	require.NoError(t, <-closed)
	require.NoError(t, background.err(), "this is not a failure")
	require.EqualValues(t, 1, writes.Load())
	s = bufferedStore(t, disk, "state")
	requireOffset(t, s, offset, "closed")
	require.Len(t, lookup(t, s, keys...), len(keys))
	for writes.Load() < 3 {
		spill()
	}
	require.NoError(t, s.Close())
}

// A compaction pauses as long as it worked, but not for long, and not at all if many files wait for it.
func TestPace(t *testing.T) {
	t.Parallel()
	p := newPace(vfs.NewMem())
	var paused []time.Duration
	p.sleep = func(d time.Duration) { paused = append(paused, d) }
	write := func(worked time.Duration) (pause time.Duration) {
		paused = []time.Duration{0}
		f, err := p.Create("1.sst", compactionWrites)
		require.NoError(t, err)
		f.(*pacedFile).last = time.Now().Add(-worked)
		_, err = f.Write([]byte("x"))
		require.NoError(t, err)
		require.Less(t, time.Since(f.(*pacedFile).last), time.Minute, "for the next write")
		return paused[len(paused)-1]
	}
	require.Equal(t, longestPause, write(time.Hour))
	pause := write(10 * time.Millisecond)
	require.True(t, pause >= 10*time.Millisecond && pause <= longestPause, "%v", pause)
	p.hurry.Store(true)
	require.Zero(t, write(time.Hour))
}
