package fold

import (
	"encoding/binary"
	"math/bits"
)

// index finds keys in a slice, by hashing with open addressing. A Go map takes twice as long: it stores the keys again.
type index[K comparable] struct {
	slots []slot // a power of two, less than three fourths of them in use
	shift int    // from a hash to its slot
	taken int
}

// slot is an index in the slice + 1 (0: free), and the upper half of the key's hash, whose highest bits choose the
// slot, however many slots there are.
type slot struct{ hash, place uint32 }

const leastSlots = 1 << 10

func (x *index[K]) reset() {
	clear(x.slots)
	x.taken = 0
}

// place returns a key's index in keys; with known false, the caller must append the key, which then has that index.
func (x *index[K]) place(hash uint64, key K, keys []K) (place int32, known bool) {
	if 4*x.taken >= 3*len(x.slots) {
		x.grow()
	}
	high := uint32(hash >> 32)
	s := x.find(high, func(s *slot) bool { return s.hash == high && keys[s.place-1] == key })
	if s.place != 0 {
		return int32(s.place - 1), true
	}
	x.taken++
	*s = slot{high, uint32(len(keys) + 1)}
	return int32(len(keys)), false
}

// find returns the first slot of a hash that is free or satisfies is.
func (x *index[K]) find(hash uint32, is func(*slot) bool) *slot {
	for i := hash >> x.shift; ; i = (i + 1) & uint32(len(x.slots)-1) {
		if s := &x.slots[i]; s.place == 0 || is(s) {
			return s
		}
	}
}

func (x *index[K]) grow() {
	old := x.slots
	x.slots = make([]slot, max(leastSlots, 2*len(old)))
	x.shift = 33 - bits.Len(uint(len(x.slots)))
	for _, s := range old {
		if s.place != 0 {
			*x.find(s.hash, func(*slot) bool { return false }) = s
		}
	}
}

// seed makes hashes unpredictable, so that nobody can choose ids that share slots. It affects nothing else.
type seed [2]uint64

func (s *seed) mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a^s[0], b^s[1])
	return high ^ low
}

func (s *seed) pair(k PairKey) uint64 { return s.mix(k.PostID, k.UserID) }
func (s *seed) post(id uint64) uint64 { return s.mix(id, 0) }

func (s *seed) delta(k deltaKey) uint64 {
	var region [8]byte
	copy(region[:], k.region[:])
	return s.mix(uint64(k.minute)^uint64(k.post)<<32, binary.LittleEndian.Uint64(region[:]))
}
