// Package buffer is the write buffer of a store. The last writes are kept in hash tables in front of Pebble, unordered,
// and spilled to disk as one sorted file; a spilled table stays readable until its memory is needed. A Bloom filter of
// the keys on disk saves nearly all lookups of keys that are not there.
//
//	Stage ──► recent ──(full)──► spill ──(on disk, too)──► older ──► recent
//
// Pebble's own memtable is ordered, at the expense of each write and each lookup; the buffer sorts once, for the spill.
//
//	buffer.go, spill.go   one store's buffer
//	memtable.go           a hash table of entries; pages.go its memory, sorter.go its order
//	key_filter.go         the keys on disk
package buffer

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
)

// Memory is the memory that the buffers of several stores share.
type Memory struct {
	bytes uint64
	open  atomic.Int32 // buffers among which it is divided
	pages pages

	sorting sync.Mutex // one sort at a time: it takes as much memory as what it sorts
	sorter  sorter
}

// NewMemory returns memory of so many bytes, of which it allocates none yet.
func NewMemory(bytes uint64) *Memory {
	return &Memory{bytes: bytes, pages: pages{small: bytes < minPaged}}
}

// Close frees the memory, unless a buffer is still open: somebody may be reading it.
func (m *Memory) Close() {
	if m.open.Load() == 0 {
		m.pages.close()
	}
}

func (m *Memory) share() int { return int(m.bytes / uint64(max(1, m.open.Load()))) }

// Buffer is the write buffer of one store. One goroutine at a time calls its methods, except Keys and Read.
type Buffer struct {
	memory   *Memory
	seed     maphash.Seed
	recent   *memtable
	spill    *Spill      // the last one, in progress or on disk; nil: there was none
	older    []*memtable // earlier spills, the newest first
	filter   *keyFilter  // used once build is done: until then the disk is asked for every key
	build    *filterBuild
	read     chan struct{} // closed when build is done
	unsealed bool          // something is staged that may not be in the log

	// Scratch memory of a lookup: the hashes of the current group of keys, which of them the disk may have (one bit
	// each), whether a spill is in progress, and the keys to look up on disk.
	hashes   []uint64
	onDisk   uint64
	spilling bool
	missing  []missingKey
	keys     []byte // the bytes of missing
	touched  uint64 // see memtable.touched
}

type missingKey struct {
	i        int
	from, to int // in Buffer.keys
}

// spillsPerShare: a buffer spills when it fills 1/4 of its share. The rest is for spills in progress and earlier ones.
const spillsPerShare = 4

const maxSpill = 1 << 30 // bounds a spill, in bytes: the places of a memtable have 32 bits

// Full reports whether it is time for a Spill.
func (b *Buffer) Full() bool {
	return b.recent.held() >= min(b.memory.share()/spillsPerShare, maxSpill)
}

// Empty reports whether there is nothing to spill.
func (b *Buffer) Empty() bool { return b.recent.keys == 0 }

// Read is closed when the keys on disk have been read, or could not be.
func (b *Buffer) Read() <-chan struct{} { return b.read }

// Keys returns about how many keys are on disk.
func (b *Buffer) Keys() uint64 { return b.filter.keys.Load() }

func (b *Buffer) hash(key []byte) uint64 { return maphash.Bytes(b.seed, key) }

// Stage makes n entries visible to lookups, which must not be spilled before Seal; a nil value deletes.
func (b *Buffer) Stage(n int, entry func(i int) (key, value []byte)) {
	b.unsealed = true
	for from := 0; from < n; from += touchChunk {
		to := min(from+touchChunk, n)
		b.hashes = b.hashes[:0]
		for i := from; i < to; i++ {
			key, _ := entry(i)
			b.hashes = append(b.hashes, b.hash(key))
		}
		b.touched ^= b.recent.touch(b.hashes)
		for i := from; i < to; i++ {
			key, value := entry(i)
			b.recent.set(b.hashes[i-from], key, value)
		}
	}
}

// Seal makes what was staged final.
func (b *Buffer) Seal() { b.unsealed = false }

// Unsealed reports whether something is staged.
func (b *Buffer) Unsealed() bool { return b.unsealed }

// Abandon drops what was staged, and with it everything since the last spill.
func (b *Buffer) Abandon() {
	b.unsealed = false
	b.recent.reset()
}

// touch asks the filter for the current hashes, and prefetches what is known of them.
func (b *Buffer) touch() {
	// Before the filter is asked: it may lack a part of the last spill while that is in progress, or if it has failed.
	b.spilling = !b.Settled() || b.spill != nil && b.spill.err != nil
	b.onDisk = ^uint64(0)
	if b.build == nil {
		b.onDisk = b.filter.mayHaveOf(b.hashes)
	}
	b.touched ^= b.recent.touch(b.hashes)
	if b.spilling {
		b.touched ^= b.spill.entries.touch(b.hashes)
	}
}

// get returns the value of a key, nil if it was deleted; known is false if it is not in memory. onDisk: the disk may
// have the key, and so may the earlier spills in memory. onDisk and spilling are as of the last touch.
func (b *Buffer) get(hash uint64, key []byte, onDisk bool) (value []byte, known bool) {
	if value, ok := b.recent.get(hash, key); ok {
		return value, true
	}
	if b.spill != nil && (onDisk || b.spilling) {
		if value, ok := b.spill.entries.get(hash, key); ok {
			return value, true
		}
	}
	if !onDisk {
		return nil, false
	}
	for _, m := range b.older {
		if value, ok := m.get(hash, key); ok {
			return value, true
		}
	}
	return nil, false
}

// Find returns the value of a key, nil if it does not exist. known is false if only the disk can tell.
func (b *Buffer) Find(key []byte) (value []byte, known bool) {
	b.hashes = append(b.hashes[:0], b.hash(key))
	b.touch()
	onDisk := b.onDisk&1 == 1
	value, known = b.get(b.hashes[0], key, onDisk)
	return value, known || !onDisk
}

// Lookup calls found with the value of each of n keys that is in memory. missing is how many keys only the disk can
// tell; Missing returns them, until the next Lookup.
func (b *Buffer) Lookup(n int, key func(i int) []byte, found func(i int, value []byte) error) (missing int, err error) {
	if b.build != nil && isClosed(b.build.done) && b.build.ok {
		b.build = nil
	}
	b.missing, b.keys = b.missing[:0], b.keys[:0]
	for i := range n {
		if i%touchChunk == 0 {
			b.hashes = b.hashes[:0]
			for j := i; j < min(i+touchChunk, n); j++ {
				b.hashes = append(b.hashes, b.hash(key(j)))
			}
			b.touch()
		}
		k, onDisk := key(i), b.onDisk>>(i%touchChunk)&1 == 1
		value, known := b.get(b.hashes[i%touchChunk], k, onDisk)
		switch {
		case value != nil:
			if err := found(i, value); err != nil {
				return 0, err
			}
		case !known && onDisk:
			from := len(b.keys)
			b.keys = append(b.keys, k...)
			b.missing = append(b.missing, missingKey{i, from, len(b.keys)})
		}
	}
	slices.SortFunc(b.missing, func(x, y missingKey) int {
		return bytes.Compare(b.keys[x.from:x.to], b.keys[y.from:y.to])
	})
	return len(b.missing), nil
}

// Missing returns one of the keys that only the disk can tell, which are sorted, and its index in the Lookup.
func (b *Buffer) Missing(i int) (key []byte, place int) {
	m := b.missing[i]
	return b.keys[m.from:m.to], m.i
}
