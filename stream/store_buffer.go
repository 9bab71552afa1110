package stream

import (
	"bytes"
	"hash/maphash"
	"slices"
)

// buffer is what stands before Pebble in a store with BufferBytes: what was written last,
// until it goes to Pebble as one sorted batch, and a filter of the keys that Pebble has. A
// crash takes what is in it, as it takes Pebble's own memtable: the offset goes along.
type buffer struct {
	limit  int
	seed   maphash.Seed
	recent memtable
	// filter is nil until build is done: then Pebble is asked for every key.
	filter *keyFilter
	build  *filterBuild
	staged []byte // for the next Write

	missing []missingKey // of the present Lookup
	keys    []byte       // of missing
}

// missingKey is one that is to be looked up in Pebble.
type missingKey struct {
	i        int
	from, to int // in buffer.keys
}

func newBuffer(limit uint64) *buffer { return &buffer{limit: int(limit), seed: maphash.MakeSeed()} }

func (b *buffer) hash(key []byte) uint64 { return maphash.Bytes(b.seed, key) }

// stage returns memory for one Write; a second one at the same time gets its own.
func (b *buffer) stage() []byte {
	staged := b.staged[:0]
	b.staged = nil
	return staged
}

// get returns the value of a key, nil if it is not there; known is false if Pebble is to
// be asked.
func (b *buffer) get(key []byte) (value []byte, known bool) {
	hash := b.hash(key)
	if value, ok := b.recent.get(hash, key); ok {
		return value, true
	}
	return nil, b.filter != nil && !b.filter.mayHave(hash)
}

// commitToBuffer is Commit of entries.
func (s *Store) commitToBuffer(entries []byte, offset int64) error {
	b := s.buffer
	var key, value []byte
	for rest := entries; len(rest) > 0; {
		key, value, rest = cutEntry(rest)
		b.recent.set(b.hash(key), key, value)
	}
	b.staged = entries
	s.setOffset(offset)
	if b.recent.bytes < b.limit {
		return nil
	}
	return s.spill()
}

// spill hands what is in the buffer to Pebble.
func (s *Store) spill() error {
	b := s.buffer
	offset := s.position()
	if b == nil || b.recent.keys == 0 && offset == s.spilled {
		return nil
	}
	b.takeFilter()
	batch := s.db.NewBatchWithSize(b.recent.bytes + 8*b.recent.keys + 1<<10)
	defer func() { _ = batch.Close() }() // of what is applied, it only gives the memory back
	err := b.recent.sorted(func(key, value []byte) error {
		b.note(b.hash(key))
		if value == nil {
			return batch.Delete(key, nil)
		}
		return batch.Set(key, value, nil)
	})
	if err != nil {
		return s.readError(err)
	}
	if err := s.commitBatch(batch, offset); err != nil {
		return err
	}
	s.spilled = offset
	b.recent.reset()
	return nil
}

// note has the filter know of a key that comes to Pebble.
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
	late       []uint64   // hashes of keys that came to Pebble since
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
	if s.buffer != nil && s.buffer.build != nil {
		close(s.buffer.build.stop)
		<-s.buffer.build.done
		s.buffer.build = nil
	}
}
