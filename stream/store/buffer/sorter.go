package buffer

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// sorter sorts places by their keys, stably. It keeps its memory for the next sort.
type sorter struct {
	// pairs have keys of sortedBytes, as pairs do. The others are few, but would make all bytes of a hot post's differ.
	pairs, others []sortedEntry
	spare         []sortedEntry
	counts        [256]int32
}

func (s *sorter) reset(pairs int) { s.pairs, s.others = slices.Grow(s.pairs[:0], pairs), s.others[:0] }

func (s *sorter) add(key []byte, place uint32) {
	if len(key) == sortedBytes {
		s.pairs = append(s.pairs, newSortedEntry(key, place))
	} else {
		s.others = append(s.others, newSortedEntry(key, place))
	}
}

// sortedEntry is a place with the first bytes of its key, which nearly always determine the order.
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

// at returns a byte of the key's beginning; 0 is the last one.
func (e *sortedEntry) at(i int) byte {
	if i < 8 {
		return byte(e.low >> (8 * i))
	}
	return byte(e.high >> (8 * (i - 8)))
}

// sort returns all entries in order. compare compares the keys of two places.
func (s *sorter) sort(compare func(a, b uint32) int) []sortedEntry {
	s.spare = slices.Grow(s.spare[:0], len(s.pairs)+len(s.others))
	s.order(s.pairs, compare)
	s.order(s.others, compare)
	if len(s.others) == 0 {
		return s.pairs
	}
	return s.merge(compare)
}

// order is a radix sort by the keys' beginnings, last byte first. It skips equal bytes: most, in a hot post's pairs.
func (s *sorter) order(entries []sortedEntry, compare func(a, b uint32) int) {
	if len(entries) == 0 {
		return
	}
	first := entries[0]
	var differing sortedEntry // the bits in which any differs from the first
	for _, e := range entries {
		differing.high, differing.low = differing.high|(e.high^first.high), differing.low|(e.low^first.low)
	}
	from, to := entries, s.spare[:len(entries)]
	for i := range sortedBytes {
		if differing.at(i) != 0 {
			s.distribute(to, from, i)
			from, to = to, from
		}
	}
	if &from[0] != &entries[0] {
		copy(entries, from)
	}
	sortEqual(entries, compare)
}

func (s *sorter) merge(compare func(a, b uint32) int) []sortedEntry {
	pairs, others := s.pairs, s.others
	all := s.spare[:0]
	for len(pairs) > 0 && len(others) > 0 {
		p, o := pairs[0], others[0]
		if cmp.Or(cmp.Compare(p.high, o.high), cmp.Compare(p.low, o.low)) < 0 || p.high == o.high && p.low == o.low &&
			compare(p.place, o.place) < 0 {
			all, pairs = append(all, p), pairs[1:]
		} else {
			all, others = append(all, o), others[1:]
		}
	}
	return append(append(all, pairs...), others...)
}

func (s *sorter) distribute(to, from []sortedEntry, i int) {
	next := &s.counts
	clear(next[:])
	for _, e := range from {
		next[e.at(i)]++
	}
	sum := int32(0)
	for b, n := range next {
		next[b] = sum
		sum += n
	}
	for _, e := range from {
		b := e.at(i)
		to[next[b]] = e
		next[b]++
	}
}

func sortEqual(entries []sortedEntry, compare func(a, b uint32) int) {
	for from := 0; from < len(entries); {
		to := from + 1
		for to < len(entries) && entries[to].high == entries[from].high && entries[to].low == entries[from].low {
			to++
		}
		if to-from > 1 {
			slices.SortStableFunc(entries[from:to], func(a, b sortedEntry) int { return compare(a.place, b.place) })
		}
		from = to
	}
}
