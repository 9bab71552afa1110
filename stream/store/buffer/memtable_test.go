package buffer

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The same operations on a memtable and a map, with keys and values of any size, often repeated, over several fillings.
func TestMemtableIsAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	seed := maphash.MakeSeed()
	m := memtable{pages: &pages{}}
	defer m.pages.close()
	var order sorter
	for filling := range 3 {
		want := map[string][]byte{}
		for range 20_000 {
			key := bytes.Repeat([]byte{byte(r.IntN(4))}, r.IntN(20))
			key = fmt.Appendf(key, "%d", r.IntN(5000))
			var value []byte
			switch r.IntN(10) {
			case 0: // deleted
			case 1:
				value = make([]byte, r.IntN(400))
			default:
				value = fmt.Appendf(nil, "%08d", r.IntN(1e8))
			}
			m.set(maphash.Bytes(seed, key), key, value)
			want[string(key)] = value
		}
		require.Equal(t, len(want), m.keys, "filling %d", filling)
		for key, value := range want {
			have, ok := m.get(maphash.String(seed, key), []byte(key))
			require.True(t, ok, "%q", key)
			require.Equal(t, value, have, "%q", key)
		}
		_, ok := m.get(maphash.String(seed, "no"), []byte("no"))
		require.False(t, ok)
		var keys []string
		require.NoError(t, m.sorted(&order, func(key, value []byte) error {
			require.Equal(t, want[string(key)], value)
			keys = append(keys, string(key))
			return nil
		}))
		require.Equal(t, slices.Sorted(maps.Keys(want)), keys)
		m.reset()
		require.Zero(t, m.bytes)
	}
}

// With equal hashes, the keys decide.
func TestMemtableOfEqualHashes(t *testing.T) {
	m := memtable{pages: &pages{}}
	defer m.pages.close()
	for i := range 100 {
		m.set(7, fmt.Append(nil, i), fmt.Append(nil, -i))
	}
	for i := range 100 {
		value, ok := m.get(7, fmt.Append(nil, i))
		require.True(t, ok)
		require.Equal(t, fmt.Append(nil, -i), value)
	}
	_, ok := m.get(7, []byte("100"))
	require.False(t, ok)
}

func TestMemtableOfGiants(t *testing.T) {
	m := memtable{pages: &pages{}}
	defer m.pages.close()
	giant := bytes.Repeat([]byte("g"), 3*chunkSize)
	for round := range 2 {
		m.set(1, []byte("a"), giant)
		m.set(2, []byte("b"), []byte("small"))
		value, ok := m.get(1, []byte("a"))
		require.True(t, ok, "round %d", round)
		require.True(t, bytes.Equal(giant, value))
		value, _ = m.get(2, []byte("b"))
		require.Equal(t, "small", string(value))
		m.reset()
	}
}

// The filter passes all keys that were added, and almost no others, even with many more keys than it was made for.
func TestKeyFilter(t *testing.T) {
	f := newKeyFilter(0)
	seed := maphash.MakeSeed()
	hash := func(i int) uint64 { return maphash.Comparable(seed, i) }
	const n = 3 * minFilterKeys
	require.False(t, f.mayHave(hash(0)), "empty")
	all := make([]uint64, n)
	for i := range all {
		all[i] = hash(i)
	}
	f.add(all)
	for i := range n {
		require.True(t, f.mayHave(hash(i)))
	}
	passed := 0
	for i := range n {
		if f.mayHave(hash(n + i)) {
			passed++
		}
	}
	for i := 0; i < 2*n; i += touchChunk {
		which := f.mayHaveOf(hashesOf(hash, i))
		for j := range touchChunk {
			require.Equal(t, f.mayHave(hash(i+j)), which>>j&1 == 1)
		}
	}
	require.NotZero(t, passed, "a Bloom filter of this size lets some pass")
	require.Less(t, float64(passed)/n, filterError*float64(len(*f.parts.Load())))
	free := f.free
	f.add(all)
	require.Equal(t, free, f.free, "existing keys take no more space")
}

func hashesOf(hash func(int) uint64, i int) (hashes []uint64) {
	for j := range touchChunk {
		hashes = append(hashes, hash(i+j))
	}
	return hashes
}

// Chunks are empty and in use once at a time, also after they were given back.
func TestPages(t *testing.T) {
	for _, small := range []bool{false, true} {
		p, used := &pages{small: small}, map[*byte]bool{}
		var chunks [][]byte
		for range 3 * mappedChunks {
			c := p.chunk(1)
			require.Empty(t, c)
			require.Equal(t, chunkSize, cap(c))
			c = append(c, make([]byte, chunkSize)...)
			require.False(t, used[&c[0]], "handed out twice")
			used[&c[0]] = true
			chunks = append(chunks, c)
		}
		p.giveBack(append(chunks[:5:5], make([]byte, 2*chunkSize)))
		again := p.chunk(1)
		require.Empty(t, again)
		require.Equal(t, !small, used[&again[:1][0]])
		p.close()
	}
}

// Slots are zero, whether they are mapped pages or not.
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

// Keys of all lengths, many with equal beginnings, are sorted like by a stable comparison sort.
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
