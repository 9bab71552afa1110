package fold

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Keys are distinguished whatever their hashes are, also after the index has grown and after a reset.
func TestIndexOfEqualHashes(t *testing.T) {
	const n = leastSlots
	for name, hash := range map[string]func(uint64) uint64{
		"all the same":   func(uint64) uint64 { return 7 << 32 },
		"the last slots": func(uint64) uint64 { return 1<<64 - 1 },
		"a few":          func(key uint64) uint64 { return key % 3 << 61 },
		"all different":  func(key uint64) uint64 { return key << 40 },
	} {
		t.Run(name, func(t *testing.T) {
			var x index[uint64]
			for range 2 {
				x.reset()
				var keys []uint64
				for key := range uint64(n) {
					place, known := x.place(hash(key), key, keys)
					require.False(t, known)
					require.EqualValues(t, key, place)
					keys = append(keys, key)
				}
				require.Greater(t, 3*len(x.slots), 4*(len(keys)-1), "a quarter is free, or lookups would be slow")
				for key := range uint64(n) {
					place, known := x.place(hash(key), key, keys)
					require.True(t, known)
					require.EqualValues(t, key, place)
				}
			}
		})
	}
}
