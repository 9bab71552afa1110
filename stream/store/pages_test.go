package store

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPages: chunks come empty and are handed out once, also after they came back.
func TestPages(t *testing.T) {
	for _, small := range []bool{false, true} {
		p := &pages{small: small}
		used := map[*byte]bool{}
		var chunks [][]byte
		for range 3 * mappedChunks {
			c := p.chunk()
			require.Empty(t, c)
			require.Equal(t, chunkSize, cap(c))
			c = append(c, make([]byte, chunkSize)...)
			require.False(t, used[&c[0]], "handed out twice")
			used[&c[0]] = true
			chunks = append(chunks, c)
		}
		p.giveBack(append(chunks[:5:5], make([]byte, 2*chunkSize)))
		again := p.chunk()
		require.Empty(t, again)
		require.Equal(t, !small, used[&again[:1][0]])
		p.close()
	}
}

// TestSlots: they are zero, whether they are pages of their own or not.
func TestSlots(t *testing.T) {
	for _, n := range []int{minIndex, hugePage / 8, hugePage} {
		for range 2 {
			s := mapSlots(n)
			require.Len(t, s, n)
			for i := range s {
				require.Zero(t, s[i])
				s[i] = ^uint64(0)
			}
			unmapSlots(s)
		}
	}
}
