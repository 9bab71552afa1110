package store

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompactStopped(t *testing.T) {
	const keys = 20_000
	log := slog.New(slog.DiscardHandler)
	root := t.TempDir()
	stores := NewSet(root, 1<<20, log)
	defer stores.Close()
	store := stores.New("table", 3)
	require.NoError(t, store.Open())
	for round := range 3 { // so that files hold what later ones replace
		w := store.NewWrite()
		for i := range keys {
			require.NoError(t, w.Set(fmt.Appendf(nil, "key-%08d", i), fmt.Appendf(nil, "value of round %d", round)))
		}
		require.NoError(t, w.Commit(int64(round)))
		require.NoError(t, store.flush())
	}
	dir := filepath.Join(root, "table", "3")
	_, err := CompactStopped(dir, log, func([]byte) {})
	require.ErrorContains(t, err, dir, "the store is open")
	require.NoError(t, store.Close())

	seen := map[string]int{}
	bytes, err := CompactStopped(dir, log, func(key []byte) { seen[string(key)]++ })
	require.NoError(t, err)
	require.Len(t, seen, keys+1, "the keys and the store's own record")
	require.Equal(t, 1, seen["key-00000000"])
	var inFiles int64
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		inFiles += info.Size()
	}
	require.Equal(t, inFiles, bytes)
	again, err := CompactStopped(dir, log, func([]byte) {})
	require.NoError(t, err)
	require.InDelta(t, bytes, again, 0.1*float64(bytes), "a second compaction gains nothing")

	require.NoError(t, store.Open(), "the store is intact")
	requireOffset(t, store, 2)
	require.Equal(t, "value of round 2", get(t, store, "key-00000000"))
	require.NoError(t, store.Close())

	_, err = CompactStopped(filepath.Join(root, "table", "4"), log, func([]byte) {})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoDirExists(t, filepath.Join(root, "table", "4"))
}
