package store

import "hash/maphash"

// filterBuild reads the keys that Pebble has into a filter, beside all else: after a
// start, that takes a second for some million keys.
type filterBuild struct {
	stop, done chan struct{}
	ok         bool // after done: all of them are in it
}

// filterKeyBytes is about what a key takes on disk.
const filterKeyBytes = 24

// openBuffer begins with the keys that Pebble has.
func (s *Store) openBuffer() error {
	if s.budget == nil {
		return nil
	}
	iter, err := s.db.NewIter(nil) // sees the keys of now, however long it takes
	if err != nil {
		return err
	}
	s.spilled = s.position()
	total := s.db.Metrics().Total()
	build := &filterBuild{stop: make(chan struct{}), done: make(chan struct{})}
	b := &buffer{
		budget: s.budget,
		seed:   maphash.MakeSeed(),
		recent: &memtable{pages: &s.budget.pages},
		filter: newKeyFilter(uint64(total.TablesSize) / filterKeyBytes),
		build:  build,
	}
	s.buffer = b
	s.budget.open.Add(1)
	go func() {
		defer close(build.done)
		var hashes []uint64
		for ok := iter.First(); ok; ok = iter.Next() {
			if hashes = append(hashes, b.hash(iter.Key())); len(hashes) < 1024 {
				continue
			}
			b.filter.add(hashes)
			hashes = hashes[:0]
			if isClosed(build.stop) {
				_ = iter.Close() // nobody waits for what it has read
				return
			}
		}
		b.filter.add(hashes)
		build.ok = iter.Close() == nil
	}()
	return nil
}

// takeFilter puts the filter to use once it is whole.
func (b *buffer) takeFilter() {
	if b.build != nil && isClosed(b.build.done) && b.build.ok {
		b.build = nil
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
	}
	if b.spill != nil {
		<-b.spill.done
		b.spill.entries.close()
	}
	b.recent.close()
	for _, m := range b.older {
		m.close()
	}
	s.buffer = nil
	s.budget.open.Add(-1)
}
