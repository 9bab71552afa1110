package buffer

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// memtable holds the last writes, unordered: entries one after another, and a hash index. A spill sorts them once.
//
// An entry is key length and value length + 1 (0: the key is deleted) as varints, key, value.
type memtable struct {
	pages   *pages
	chunks  [][]byte
	index   []uint64 // hash<<32 | place + 1, by open addressing; 0: free
	shift   int      // from a hash to its first slot in the index
	keys    int
	bytes   int
	touched uint64 // keeps the compiler from removing the reads of touch
}

const minIndex = 1 << 10

const indexBytes = 16 // about what the index takes per key

func (m *memtable) held() int { return m.bytes + indexBytes*m.keys }

const touchChunk = 64 // how many keys are prefetched before the first of them is looked up

// touch prefetches the first index slots of the hashes: independent reads overlap, lookups one by one would each wait.
func (m *memtable) touch(hashes []uint64) (any uint64) {
	if m.keys == 0 {
		return 0
	}
	for _, hash := range hashes {
		any ^= m.index[uint32(hash)>>m.shift]
	}
	return any
}

// get returns the value of a key; nil with ok: it is deleted.
func (m *memtable) get(hash uint64, key []byte) (value []byte, ok bool) {
	if m.keys == 0 {
		return nil, false
	}
	slot, ok := m.find(hash, key)
	if !ok {
		return nil, false
	}
	_, value = m.entry(uint32(m.index[slot]) - 1)
	return value, true
}

func (m *memtable) find(hash uint64, key []byte) (slot int, ok bool) {
	mask := len(m.index) - 1
	for slot = int(uint32(hash) >> m.shift); m.index[slot] != 0; slot = (slot + 1) & mask {
		if uint32(m.index[slot]>>32) != uint32(hash) {
			continue
		}
		if have, _ := m.entry(uint32(m.index[slot]) - 1); bytes.Equal(have, key) {
			return slot, true
		}
	}
	return slot, false
}

// entry returns the entry at a place: a chunk and an offset in it, see chunkBits.
func (m *memtable) entry(place uint32) (key, value []byte) {
	key, value, _ = cutEntry(m.chunks[place>>chunkBits][place&(chunkSize-1):])
	return key, value
}

// set sets a key; a nil value marks it as deleted.
func (m *memtable) set(hash uint64, key, value []byte) {
	if 8*m.keys >= 5*len(m.index) {
		m.grow()
	}
	slot, known := m.find(hash, key)
	if known {
		if _, have := m.entry(uint32(m.index[slot]) - 1); have != nil && value != nil && len(have) == len(value) {
			copy(have, value) // the count of a hot post changes again and again
			return
		}
	} else {
		m.keys++
	}
	m.index[slot] = hash<<32 | uint64(m.add(key, value)+1)
}

// grow doubles the index. The index's highest hash bits choose the slot, so it fills from one end to the other.
func (m *memtable) grow() {
	old := m.index
	m.setIndex(max(minIndex, 2*len(old)))
	mask := len(m.index) - 1
	for _, e := range old {
		if e == 0 {
			continue
		}
		slot := int(e >> 32 >> m.shift)
		for m.index[slot] != 0 {
			slot = (slot + 1) & mask
		}
		m.index[slot] = e
	}
	unmapSlots(old)
}

func (m *memtable) setIndex(slots int) {
	m.index = mapSlots(slots)
	m.shift = 32 - (bits.Len(uint(slots)) - 1)
}

// eachHash calls each with the hashes, as the index keeps them, of all keys, deleted ones too. It does so in groups and
// in index order, which is also the order of the blocks of a filter.
func (m *memtable) eachHash(each func(hashes []uint64)) {
	hashes := make([]uint64, 0, 1024)
	for _, e := range m.index {
		if e == 0 {
			continue
		}
		if hashes = append(hashes, e>>32); len(hashes) == cap(hashes) {
			each(hashes)
			hashes = hashes[:0]
		}
	}
	each(hashes)
}

func (m *memtable) add(key, value []byte) (place uint32) {
	size := 2*binary.MaxVarintLen32 + len(key) + len(value)
	last := len(m.chunks) - 1
	if last < 0 || cap(m.chunks[last])-len(m.chunks[last]) < size {
		m.chunks = append(m.chunks, m.pages.chunk(size))
		last++
	}
	b := m.chunks[last]
	place = uint32(last)<<chunkBits | uint32(len(b))
	before := len(b)
	b = appendEntry(b, key, value)
	m.chunks[last] = b
	m.bytes += len(b) - before
	return place
}

func appendEntry(b, key, value []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(key)))
	if value == nil {
		b = binary.AppendUvarint(b, 0)
	} else {
		b = binary.AppendUvarint(b, uint64(len(value))+1)
	}
	return append(append(b, key...), value...)
}

func cutEntry(b []byte) (key, value, rest []byte) {
	keyLen, n := binary.Uvarint(b)
	valueLen, k := binary.Uvarint(b[n:])
	b = b[n+k:]
	key, b = b[:keyLen:keyLen], b[keyLen:]
	if valueLen > 0 {
		value, b = b[:valueLen-1:valueLen-1], b[valueLen-1:]
	}
	return key, value, b
}

// sorted calls each in key order. It collects all entries in memory order: in index order, each would wait for memory.
func (m *memtable) sorted(s *sorter, each func(key, value []byte) error) error {
	s.reset(m.keys + m.keys/8)
	for i, chunk := range m.chunks {
		for rest := chunk; len(rest) > 0; {
			place := uint32(i)<<chunkBits | uint32(len(chunk)-len(rest))
			var key []byte
			key, _, rest = cutEntry(rest)
			s.add(key, place)
		}
	}
	entries := s.sort(func(a, b uint32) int {
		keyA, _ := m.entry(a)
		keyB, _ := m.entry(b)
		return bytes.Compare(keyA, keyB)
	})
	for i, e := range entries {
		if i%touchChunk == 0 {
			for _, e := range entries[i:min(i+touchChunk, len(entries))] {
				m.touched ^= uint64(m.chunks[e.place>>chunkBits][e.place&(chunkSize-1)])
			}
		}
		key, value := m.entry(e.place)
		if i+1 < len(entries) && entries[i+1].high == e.high && entries[i+1].low == e.low {
			if next, _ := m.entry(entries[i+1].place); bytes.Equal(key, next) {
				continue // it was set again
			}
		}
		if err := each(key, value); err != nil {
			return err
		}
	}
	return nil
}

// like gives an empty table an index as large as that of another one.
func (m *memtable) like(other *memtable) {
	if len(m.index) < len(other.index) && m.keys == 0 {
		unmapSlots(m.index)
		m.setIndex(len(other.index))
	}
}

// reset empties the table. Nothing that it returned may be read afterward.
func (m *memtable) reset() {
	m.pages.giveBack(m.chunks)
	clear(m.chunks)
	m.chunks = m.chunks[:0]
	clear(m.index)
	m.keys, m.bytes = 0, 0
}

func (m *memtable) close() {
	m.reset()
	unmapSlots(m.index)
	m.index = nil
}
