package store

import (
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// A compaction pauses longer than it worked, and longer while others work, but not for long, and not at all if many
// files wait for it.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pace{FS: vfs.NewMem()}
		create := func() vfs.File {
			f, err := p.Create("1.sst", compactionWrites)
			require.NoError(t, err)
			return f
		}
		pause := func(worked time.Duration) time.Duration {
			f := create()
			defer f.Close()
			time.Sleep(worked) // by the clock of synctest
			written := time.Now()
			for range 2 { // the second one at once
				_, err := f.Write([]byte("x"))
				require.NoError(t, err)
			}
			return time.Since(written)
		}
		require.Equal(t, 4*time.Millisecond, pause(2*time.Millisecond))
		require.Equal(t, longestPause, pause(time.Hour))
		defer create().Close()
		require.Equal(t, 10*time.Millisecond, pause(2*time.Millisecond))
		p.hurry.Store(true)
		require.Zero(t, pause(time.Hour))
	})
}
