package store

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"kudos/stream/kafka"
)

// buffer is what stands before Pebble in a store with a bufferBudget: what was written
// last, until it goes to disk as one sorted file, and after that for as long as its memory
// is not needed; and a filter of the keys that Pebble has. A crash takes what is in it, as
// it takes Pebble's own memtable: the offset goes along.
//
//	Commit ──► recent ──(full)──► spill ──(on disk, too)──► older ──► recent
type buffer struct {
	budget *bufferBudget
	seed   maphash.Seed
	recent *memtable
	spill  *spill      // the last one, under way or on disk; nil: there was none
	older  []*memtable // those before, the newest one first
	// filter is of use once build is done: until then Pebble is asked for every key.
	filter *keyFilter
	build  *filterBuild
	// unsealed: something was staged, which is not known to be in the log yet.
	unsealed bool
	hashes   []uint64     // of the present group of keys
	onDisk   uint64       // which of them Pebble may have, a bit for each
	spilling bool         // see isSpilling
	touched  uint64       // as in a memtable
	missing  []missingKey // of the present Lookup
	keys     []byte       // of missing
}

// missingKey is one that is to be looked up in Pebble.
type missingKey struct {
	i        int
	from, to int // in buffer.keys
}

// spill is a filling of the buffer on its way to disk.
type spill struct {
	entries *memtable // nobody changes it any more
	id      kafka.LogID
	offset  int64 // of the last log record in it
	done    chan struct{}
	err     error // after done
}

// bufferBudget is the memory that the buffers of several stores may take together.
type bufferBudget struct {
	bytes uint64
	open  atomic.Int32 // stores among which it is divided
	pages pages

	sorting sync.Mutex // one at a time: it takes as much memory as what it sorts
	sorter  sorter
}

// share is what a buffer may take.
func (b *bufferBudget) share() int { return int(b.bytes / uint64(max(1, b.open.Load()))) }

// spillsPerShare: so much of its share a buffer fills before that goes to disk. The rest
// is for what is on its way there, and for what was there last.
const spillsPerShare = 4

// maxSpill goes to disk at a time at most: the places of a memtable have 32 bits.
const maxSpill = 1 << 30

func (b *buffer) full() bool {
	return b.recent.held() >= min(b.budget.share()/spillsPerShare, maxSpill)
}

func (b *buffer) hash(key []byte) uint64 { return maphash.Bytes(b.seed, key) }

// touch asks the filter for the present hashes, and has what is known of them come into the
// cache.
func (b *buffer) touch() {
	b.spilling = b.isSpilling() // before the filter is asked, which has all that was spilled by now
	b.onDisk = ^uint64(0)
	if b.build == nil {
		b.onDisk = b.filter.mayHaveOf(b.hashes)
	}
	b.touched ^= b.recent.touch(b.hashes)
	if b.spilling {
		b.touched ^= b.spill.entries.touch(b.hashes)
	}
}

// isSpilling tells that the filter may not have all of the last spill: it is under way, or
// has failed.
func (b *buffer) isSpilling() bool {
	return b.spill != nil && (!isClosed(b.spill.done) || b.spill.err != nil)
}

// get returns the value of a key, nil if it was deleted; known is false if it is not in
// memory. onDisk: Pebble may have it, and so may what is kept of what went there; that, and
// spilling, are as of the last touch.
func (b *buffer) get(hash uint64, key []byte, onDisk bool) (value []byte, known bool) {
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

// Stage has look-ups find n entries that the log may or may not come to have: Seal
// follows, or Abandon. A nil value deletes. Until then they are in memory only, and nothing
// goes to disk. For a store with a buffer.
func (s *Store) Stage(n int, entry func(i int) (key, value []byte)) {
	b := s.buffer
	b.unsealed = true
	for from := 0; from < n; from += touchAtATime {
		to := min(from+touchAtATime, n)
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

// Seal tells that the log has all that was staged, up to and including offset.
func (s *Store) Seal(offset int64) error {
	if err := s.usable(); err != nil {
		return err
	}
	b := s.buffer
	b.unsealed = false
	s.setOffset(offset)
	if b.spill != nil && isClosed(b.spill.done) {
		if err := s.settle(); err != nil {
			return err
		}
	}
	if !b.full() {
		return nil
	}
	return s.beginSpill()
}

// Abandon forgets what was staged, and with it what was written since the last spill: the
// log has that.
func (s *Store) Abandon() {
	b := s.buffer
	if b == nil || !b.unsealed {
		return
	}
	b.unsealed = false
	b.recent.reset()
	offset := s.spilled
	if b.spill != nil {
		offset = b.spill.offset // on its way there
	}
	s.setOffset(offset)
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// beginSpill sends what is in the buffer to disk, once the spill before has come there.
func (s *Store) beginSpill() error {
	b := s.buffer
	if b.unsealed {
		return fmt.Errorf("writing local state in %s: what was staged is not sealed", s.dir)
	}
	if err := s.settle(); err != nil {
		return err
	}
	offset := s.position()
	if b.recent.keys == 0 && offset == s.spilled {
		return nil
	}
	if b.spill != nil {
		b.older = slices.Insert(b.older, 0, b.spill.entries)
	}
	b.spill = &spill{entries: b.recent, id: s.id, offset: offset, done: make(chan struct{})}
	b.recent = b.vacate()
	b.recent.like(b.spill.entries)
	go func(sp *spill, beside *background) {
		defer close(sp.done)
		if sp.err = s.writeOut(b, sp); sp.err != nil {
			s.giveUp(beside, sp.err)
		}
	}(b.spill, s.background)
	return nil
}

// vacate gives up what is beyond the share, the oldest first, and returns an empty table.
func (b *buffer) vacate() *memtable {
	room := b.budget.share() - b.budget.share()/spillsPerShare - b.spill.entries.held()
	var empty *memtable
	kept := 0
	for _, m := range b.older {
		if room -= m.held(); room >= 0 {
			kept++
			continue
		}
		if empty != nil {
			empty.close()
		}
		empty = m
	}
	clear(b.older[kept:])
	b.older = b.older[:kept]
	if empty == nil {
		return &memtable{pages: &b.budget.pages}
	}
	empty.reset()
	return empty
}

// settle waits until the spill under way is on disk, or has failed: the store is to be
// opened again then.
func (s *Store) settle() error {
	sp := s.buffer.spill
	if sp == nil {
		return nil
	}
	<-sp.done
	if sp.err != nil {
		return sp.err
	}
	s.spilled = sp.offset
	return nil
}

// spillAll has Pebble know all that the store has.
func (s *Store) spillAll() error {
	if s.buffer == nil {
		return nil
	}
	if err := s.beginSpill(); err != nil {
		return err
	}
	return s.settle()
}

// lookup is Lookup of a store with a buffer: Pebble is asked, in the order of keys, for
// those only that may be there.
func (s *Store) lookup(n int, key func(i int) []byte, found func(i int, value []byte) error) error {
	b := s.buffer
	b.takeFilter()
	b.missing, b.keys = b.missing[:0], b.keys[:0]
	for i := range n {
		if i%touchAtATime == 0 {
			b.hashes = b.hashes[:0]
			for j := i; j < min(i+touchAtATime, n); j++ {
				b.hashes = append(b.hashes, b.hash(key(j)))
			}
			b.touch()
		}
		k, onDisk := key(i), b.onDisk>>(i%touchAtATime)&1 == 1
		value, known := b.get(b.hashes[i%touchAtATime], k, onDisk)
		switch {
		case value != nil:
			if err := found(i, value); err != nil {
				return err
			}
		case !known && onDisk:
			from := len(b.keys)
			b.keys = append(b.keys, k...)
			b.missing = append(b.missing, missingKey{i, from, len(b.keys)})
		}
	}
	if len(b.missing) == 0 {
		return nil
	}
	at := func(m missingKey) []byte { return b.keys[m.from:m.to] }
	slices.SortFunc(b.missing, func(x, y missingKey) int { return bytes.Compare(at(x), at(y)) })
	r, err := s.pebbleReader()
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Lookup(len(b.missing),
		func(i int) []byte { return at(b.missing[i]) },
		func(i int, value []byte) error { return found(b.missing[i].i, value) })
}
