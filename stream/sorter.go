package stream

import (
	"encoding/binary"
	"slices"
)

// sorter puts places into the order of their keys, stably. It keeps its memory for the
// next time.
type sorter struct {
	entries []sortedEntry
	spare   []sortedEntry
	counts  [sortedBytes][256]int32
}

// sortedEntry is a place with the beginning of its key, which nearly always tells the order.
type sortedEntry struct {
	high, low uint64
	place     uint32
}

const sortedBytes = 16

func newSortedEntry(key []byte, place uint32) sortedEntry {
	var begin [sortedBytes]byte
	copy(begin[:], key)
	return sortedEntry{binary.BigEndian.Uint64(begin[:]), binary.BigEndian.Uint64(begin[8:]), place}
}

// at is a byte of the beginning, from the last one, which is 0, to the first.
func (e *sortedEntry) at(i int) byte {
	if i < 8 {
		return byte(e.low >> (8 * i))
	}
	return byte(e.high >> (8 * (i - 8)))
}

// sort sorts the entries, by the bytes of their beginnings from the last to the first: of
// a hot post's pairs only a few differ at all. compare compares the keys of two places.
func (s *sorter) sort(compare func(a, b uint32) int) []sortedEntry {
	if len(s.entries) == 0 {
		return nil
	}
	s.counts = [sortedBytes][256]int32{}
	for _, e := range s.entries {
		for i := range 8 {
			s.counts[i][byte(e.low>>(8*i))]++
			s.counts[8+i][byte(e.high>>(8*i))]++
		}
	}
	s.spare = slices.Grow(s.spare[:0], len(s.entries))
	for i := range sortedBytes {
		if int(s.counts[i][s.entries[0].at(i)]) < len(s.entries) { // otherwise all have the same
			s.distribute(i)
		}
	}
	s.sortEqual(compare)
	return s.entries
}

// distribute sorts by one byte.
func (s *sorter) distribute(i int) {
	next := &s.counts[i]
	sum := int32(0)
	for b, n := range next {
		next[b] = sum
		sum += n
	}
	to := s.spare[:len(s.entries)]
	for _, e := range s.entries {
		b := e.at(i)
		to[next[b]] = e
		next[b]++
	}
	s.entries, s.spare = to, s.entries
}

// sortEqual sorts those that begin alike by the rest of their keys.
func (s *sorter) sortEqual(compare func(a, b uint32) int) {
	for from := 0; from < len(s.entries); {
		to := from + 1
		for to < len(s.entries) && s.entries[to].high == s.entries[from].high && s.entries[to].low == s.entries[from].low {
			to++
		}
		if to-from > 1 {
			slices.SortStableFunc(s.entries[from:to], func(a, b sortedEntry) int { return compare(a.place, b.place) })
		}
		from = to
	}
}
