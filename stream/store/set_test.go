package store

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
)

// TestMemtablesFitTheCache: they are memory beside the cache, for each partition, and fill
// for an hour.
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
