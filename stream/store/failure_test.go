package store

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
)

func closeSoon(t *testing.T, s *Store) error {
	return testkit.Receive(t, testkit.Later(s.Close), "closing a store that cannot be written must not hang")
}

func failBackground(t *testing.T, s *Store) {
	_, err := s.db.AsyncFlush()
	require.NoError(t, err)
	testkit.WaitFor(t, "the flush to fail", func() bool { return s.background.err() != nil })
	w := s.NewWrite()
	require.NoError(t, w.Set([]byte("c"), []byte("c")))
	require.Error(t, w.Commit(9), "a store that cannot flush rejects writes")
}

// Pebble retries deleted files forever, and Close would wait (found by chaos tests: the processor delayed its group).
func TestStoreWithMissingFiles(t *testing.T) {
	t.Parallel()
	t.Run("closed", func(t *testing.T) {
		s := newStore(t, t.TempDir())
		require.NoError(t, s.Open())
		put(t, s, 7, "", "a")
		require.NoError(t, os.RemoveAll(s.dir))
		require.Error(t, closeSoon(t, s))
	})
	t.Run("reopened", func(t *testing.T) {
		s := openStore(t, t.TempDir())
		put(t, s, 7, "", "a")
		require.NoError(t, os.RemoveAll(filepath.Dir(s.dir)))
		failBackground(t, s)
		require.NoError(t, s.refresh(func() {}))
		_, ok := s.Offset()
		require.False(t, ok, "nothing is left")
		put(t, s, 8, "", "b")
		require.NoError(t, s.db.Flush())
		require.NoError(t, s.refresh(func() {}), "the failure is gone")
		require.Equal(t, "b", get(t, s, "b"))
	})
}

// diskThatFills returns a disk that takes no writes while full is set.
func diskThatFills() (fs vfs.FS, full *atomic.Bool) {
	full = new(atomic.Bool)
	return errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.ENOSPC
		}
		return nil
	})), full
}

// resumesWithCapacity frees space for a store whose disk was full before b was written: it has a only, takes b again,
// and can be closed even though the disk is full once more.
func resumesWithCapacity(t *testing.T, s *Store, full *atomic.Bool) {
	t.Helper()
	full.Store(false)
	require.NoError(t, s.refresh(func() {}))
	requireOffset(t, s, 7, "what was in memory is read from the log again")
	require.Equal(t, map[string]string{"a": "a"}, lookup(t, s, "a", "b"))
	put(t, s, 8, "", "b")
	full.Store(true)
	require.Error(t, closeSoon(t, s))
}

// What was on disk before is kept, and used once there is space.
func TestStoreOnAFullDisk(t *testing.T) {
	fs, full := diskThatFills()
	stores := NewSetOn(fs, t.TempDir(), 64<<20, testkit.Log())
	t.Cleanup(stores.Close)
	s := stores.New("table", 0)
	require.NoError(t, s.Open())
	put(t, s, 7, "", "a")
	require.NoError(t, s.db.Flush())
	put(t, s, 8, "", "b")

	full.Store(true)
	failBackground(t, s)
	require.ErrorIs(t, s.refresh(func() {}), syscall.ENOSPC)
	require.ErrorIs(t, s.refresh(func() {}), syscall.ENOSPC, "as long as the disk is full")
	resumesWithCapacity(t, s, full)
}

// A failed spill is an error at the next write, and nobody waits for it.
func TestBufferedStoreOnAFullDisk(t *testing.T) {
	fs, full := diskThatFills()
	s := bufferedStore(t, fs, t.TempDir())
	put(t, s, 7, "", "a")
	require.NoError(t, s.spillAll())
	<-s.buffer.Read() // from now on the filter decides
	full.Store(true)
	put(t, s, 8, "", "b")
	require.NoError(t, s.beginSpill())
	require.Equal(t, map[string]string{"a": "a", "b": "b"}, lookup(t, s, "a", "b"), "being spilled")
	require.Error(t, s.buffer.Settle())
	require.Equal(t, map[string]string{"a": "a", "b": "b"}, lookup(t, s, "a", "b"), "the filter does not include it")
	require.Equal(t, "b", get(t, s, "b"))
	w := s.NewWrite()
	require.NoError(t, w.Set([]byte("c"), []byte("c")))
	require.Error(t, w.Commit(9))
	require.ErrorIs(t, s.refresh(func() {}), syscall.ENOSPC)
	resumesWithCapacity(t, s, full)
}

// A filter that lacks keys must not decide, or keys that are on disk would be taken for new ones.
func TestFilterWithUnreadableKeys(t *testing.T) {
	dir := t.TempDir()
	s := bufferedStore(t, vfs.Default, dir)
	const keys = 5000
	fill(t, s, keys, 7)
	require.NoError(t, s.spillAll())
	require.NoError(t, s.db.Flush())
	file := newest(t, s, "*.sst")
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.NoError(t, s.Close())

	var damaged atomic.Bool
	damaged.Store(true)
	s = bufferedStore(t, errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		inTheMiddle := op.Offset > info.Size()/4 && op.Offset < info.Size()/2
		if damaged.Load() && op.Kind == errorfs.OpFileReadAt && op.Path == file && inTheMiddle {
			return syscall.EIO
		}
		return nil
	})), dir)
	defer func() { require.NoError(t, s.Close()) }()
	<-s.buffer.Read()
	damaged.Store(false)
	for i := range keys {
		key := fmt.Sprintf("key-%06d", i)
		require.Equal(t, map[string]string{key: key}, lookup(t, s, key))
	}
}
