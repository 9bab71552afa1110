package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSorter sorts keys of all lengths, many of which begin alike, as a stable sort by
// comparing does.
func TestSorter(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var s sorter
	for _, n := range []int{0, 1, 2, 1000, 300} {
		keys := make([][]byte, n)
		want := make([]uint32, n)
		s.reset(n)
		for i := range keys {
			key := bytes.Repeat([]byte{byte(r.IntN(3))}, r.IntN(24))
			if r.IntN(3) == 0 {
				key = fmt.Appendf(key, "%d", r.IntN(50))
			}
			keys[i], want[i] = key, uint32(i)
			s.add(key, uint32(i))
		}
		compare := func(a, b uint32) int { return bytes.Compare(keys[a], keys[b]) }
		slices.SortStableFunc(want, compare)
		have := make([]uint32, 0, n)
		for _, e := range s.sort(compare) {
			have = append(have, e.place)
		}
		require.Equal(t, want, have)
	}
}
