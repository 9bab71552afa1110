package stream

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// TestSizeIsOfWhatIsOpen: keys are counted once, over a start, too; a store that is closed has
// no series.
func TestSizeIsOfWhatIsOpen(t *testing.T) {
	stores := NewStoresOn(vfs.NewMem(), "state", 1<<20, testLog())
	stores.BufferBytes = 4 << 10
	t.Cleanup(stores.Close)
	open := func() *Store {
		st, err := stores.Builder(func(string) (LogID, error) { return testLogID, nil })("table", 3)
		require.NoError(t, err)
		require.NoError(t, st.Open())
		return st.(*Store)
	}
	sizes := NewSizeCollector("fold", stores)
	require.Empty(t, gauges(t, sizes))
	s := open()
	const keys, bytes = "kudos_state_entries 3 fold table", "kudos_state_bytes 3 fold table"
	require.Contains(t, gauges(t, sizes), keys)
	for range 2 {
		for i := range 100 {
			put(t, s, int64(i), "", fmt.Sprint(i))
		}
		require.NoError(t, s.spillAll())
	}
	before := gauges(t, sizes)
	require.InDelta(t, 100, before[keys], 2)
	require.Positive(t, before[bytes])
	require.NoError(t, s.Close())
	require.Empty(t, gauges(t, sizes))
	s = open()
	waitFor(t, "the keys to be counted", func() bool { return gauges(t, sizes)[keys] >= before[keys]-2 })
	require.InDelta(t, 101, gauges(t, sizes)[keys], 2, "with the store's own position")
	require.NoError(t, s.Close())
}
