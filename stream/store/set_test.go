package store

import (
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
)

// Memtables are memory besides the cache, one per partition, and take an hour to fill.
func TestMemtablesFitTheCache(t *testing.T) {
	for _, c := range []struct {
		bytes uint64
		cache int64
		want  uint64
	}{
		{memtableBytes, 256 << 20, memtableBytes}, // the roles' defaults
		{8 << 20, 256 << 20, 8 << 20},
		{memtableBytes, 8 << 20, 1 << 20}, // kudos dev
		{8 << 20, 1 << 20, minMemtable},
		{1 << 30, 1 << 40, memtableBytes},
	} {
		s := NewSetOn(vfs.NewMem(), "state", 1<<20, testkit.Log())
		s.FitMemtables(c.bytes, c.cache)
		require.Equal(t, c.want, s.MemtableBytes, "%d bytes, a cache of %d", c.bytes, c.cache)
		s.Close()
	}
}

// Store, on which all roles build, has few methods.
func TestStoreInterfaceIsNarrow(t *testing.T) {
	require.LessOrEqual(t, reflect.TypeFor[*Store]().NumMethod(), 12)
}

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// Keys are counted once, across restarts too; a closed store has no series.
func TestSizeIsOfWhatIsOpen(t *testing.T) {
	stores := NewSetOn(vfs.NewMem(), "state", 1<<20, testkit.Log())
	stores.BufferBytes = 4 << 10
	t.Cleanup(stores.Close)
	open := func() *Store {
		s := stores.New("table", 3)
		require.NoError(t, s.Open())
		return s
	}
	sizes := NewCollector("fold", stores)
	require.Empty(t, testkit.Gauges(t, sizes))
	s := open()
	const keys, bytes = "kudos_state_entries 3 fold table", "kudos_state_bytes 3 fold table"
	require.Contains(t, testkit.Gauges(t, sizes), keys)
	for range 2 {
		for i := range 100 {
			put(t, s, int64(i), "", fmt.Sprint(i))
		}
		require.NoError(t, s.spillAll())
	}
	before := testkit.Gauges(t, sizes)
	require.InDelta(t, 100, before[keys], 2)
	require.Positive(t, before[bytes])
	require.NoError(t, s.Close())
	require.Empty(t, testkit.Gauges(t, sizes))
	s = open()
	testkit.WaitFor(t, "the keys to be counted", func() bool {
		return testkit.Gauges(t, sizes)[keys] >= before[keys]-2
	})
	require.InDelta(t, 101, testkit.Gauges(t, sizes)[keys], 2, "including the store's own position")
	require.NoError(t, s.Close())
}
