package stream

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"slices"
)

// buffer is what stands before Pebble in a store with BufferBytes: what was written last,
// until it goes to disk as one sorted batch, and a filter of all keys. A crash takes what
// is in it, as it takes Pebble's own memtable: the offset goes along.
//
//	Commit ──► recent ──(full)──► spill ──(beside)──► Pebble
type buffer struct {
	limit  int
	seed   maphash.Seed
	recent *memtable
	spill  *spill    // nil: none is under way
	spare  *memtable // that of the last spill, to be recent next
	// filter is nil until build is done: until then Pebble is asked for every key.
	filter *keyFilter
	build  *filterBuild
	// unsealed: something was staged, which is not known to be in the log yet.
	unsealed bool
	writing  []byte // memory of the next Write

	missing []missingKey // of the present Lookup
	keys    []byte       // of missing
}

// missingKey is one that is to be looked up in Pebble.
type missingKey struct {
	i        int
	from, to int // in buffer.keys
}

// spill is a filling of the buffer on its way to disk.
type spill struct {
	entries *memtable // nobody changes it any more
	id      LogID
	offset  int64 // of the last log record in it
	done    chan struct{}
	err     error // after done
}

func newBuffer(limit uint64) *buffer {
	return &buffer{limit: int(limit), seed: maphash.MakeSeed(), recent: &memtable{}, spare: &memtable{}}
}

func (b *buffer) hash(key []byte) uint64 { return maphash.Bytes(b.seed, key) }

// entries returns memory for one Write; a second one at the same time gets its own.
func (b *buffer) entries() []byte {
	entries := b.writing[:0]
	b.writing = nil
	return entries
}

// get returns the value of a key, nil if it is not there; known is false if Pebble is to
// be asked.
func (b *buffer) get(key []byte) (value []byte, known bool) {
	hash := b.hash(key)
	if value, ok := b.recent.get(hash, key); ok {
		return value, true
	}
	if b.spill != nil {
		if value, ok := b.spill.entries.get(hash, key); ok {
			return value, true
		}
	}
	return nil, b.filter != nil && !b.filter.mayHave(hash)
}

// Stage has look-ups find what the log may or may not come to have: Seal follows, or
// Abandon. Until then it is in memory only, and nothing goes to disk. For a store with a
// buffer.
func (w *Write) Stage() {
	b := w.s.buffer
	b.unsealed = true
	var key, value []byte
	for rest := w.entries; len(rest) > 0; {
		key, value, rest = cutEntry(rest)
		hash := b.hash(key)
		if b.recent.set(hash, key, value) {
			b.note(hash)
		}
	}
	b.writing = w.entries
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
	if b.recent.bytes < b.limit {
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
		offset = b.spill.offset
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
	b.spill = &spill{entries: b.recent, id: s.id, offset: offset, done: make(chan struct{})}
	b.recent, b.spare = b.spare, nil
	go func(sp *spill) {
		defer close(sp.done)
		sp.err = s.writeOut(sp)
	}(b.spill)
	return nil
}

// writeOut brings a spill to disk. It looks at nothing that the store's owner changes
// meanwhile.
func (s *Store) writeOut(sp *spill) error {
	batch := s.db.NewBatchWithSize(sp.entries.bytes + 8*sp.entries.keys + 1<<10)
	defer func() { _ = batch.Close() }() // of what is applied, it only gives the memory back
	err := sp.entries.sorted(func(key, value []byte) error {
		if value == nil {
			return batch.Delete(key, nil)
		}
		return batch.Set(key, value, nil)
	})
	if err != nil {
		return fmt.Errorf("writing local state in %s: %w", s.dir, err)
	}
	if err := s.commitBatch(batch, sp.id, sp.offset); err != nil {
		return err
	}
	// To the end, so that no more than this waits in Pebble, where it would hold up the
	// next commit without a word if the disk is full.
	return s.flushPebble()
}

// settle waits until the spill under way is on disk, or has failed: the store is to be
// opened again then.
func (s *Store) settle() error {
	b := s.buffer
	if b.spill == nil {
		return nil
	}
	<-b.spill.done
	if b.spill.err != nil {
		return b.spill.err
	}
	s.spilled = b.spill.offset
	b.spare, b.spill = b.spill.entries, nil
	b.spare.reset()
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

// note has the filter know of a key.
func (b *buffer) note(hash uint64) {
	switch {
	case b.filter != nil:
		b.filter.add(hash)
	case b.build != nil:
		b.build.late = append(b.build.late, hash)
	}
}

// lookup is Lookup of a store with a buffer: Pebble is asked, in the order of keys, for
// those only that may be there.
func (s *Store) lookup(n int, key func(i int) []byte, found func(i int, value []byte) error) error {
	b := s.buffer
	b.takeFilter()
	b.missing, b.keys = b.missing[:0], b.keys[:0]
	for i := range n {
		k := key(i)
		value, known := b.get(k)
		switch {
		case value != nil:
			if err := found(i, value); err != nil {
				return err
			}
		case !known:
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

// filterBuild reads the keys that Pebble has into a filter, beside all else: after a
// start, that takes a second for some million keys.
type filterBuild struct {
	stop, done chan struct{}
	filter     *keyFilter // after done; nil if that did not go well
	late       []uint64   // hashes of keys that came since
}

// filterKeyBytes is about what a key takes on disk.
const filterKeyBytes = 24

// openBuffer begins with the keys that Pebble has.
func (s *Store) openBuffer() error {
	if s.buffer == nil {
		return nil
	}
	b := newBuffer(uint64(s.buffer.limit))
	s.buffer = b
	s.spilled = s.position()
	iter, err := s.db.NewIter(nil) // sees the keys of now, however long it takes
	if err != nil {
		return err
	}
	total := s.db.Metrics().Total()
	build := &filterBuild{stop: make(chan struct{}), done: make(chan struct{})}
	b.build = build
	filter := newKeyFilter(uint64(total.TablesSize) / filterKeyBytes)
	go func() {
		defer close(build.done)
		for ok, n := iter.First(), 0; ok; ok, n = iter.Next(), n+1 {
			filter.add(b.hash(iter.Key()))
			if n%1024 == 0 {
				select {
				case <-build.stop:
					_ = iter.Close() // nobody waits for what it has read
					return
				default:
				}
			}
		}
		if iter.Close() == nil {
			build.filter = filter
		}
	}()
	return nil
}

// takeFilter puts the filter to use once it is there.
func (b *buffer) takeFilter() {
	if b.build == nil {
		return
	}
	select {
	case <-b.build.done:
		b.filter = b.build.filter
		for _, hash := range b.build.late {
			if b.filter != nil {
				b.filter.add(hash)
			}
		}
		b.build = nil
	default:
	}
}

// closeBuffer ends what the buffer has running. What is in it is lost.
func (s *Store) closeBuffer() {
	b := s.buffer
	if b == nil {
		return
	}
	if b.build != nil {
		close(b.build.stop)
		<-b.build.done
		b.build = nil
	}
	if b.spill != nil {
		<-b.spill.done
		b.spill = nil
	}
}
