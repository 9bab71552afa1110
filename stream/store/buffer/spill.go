package buffer

import (
	"hash/maphash"
	"slices"
)

// Spill is a table of the buffer on its way to disk.
type Spill struct {
	entries *memtable // immutable
	filter  *keyFilter
	memory  *Memory
	done    chan struct{}
	err     error // valid after done
}

// Sorted adds the keys to the filter and calls each with all entries in key order; a nil value deletes.
func (sp *Spill) Sorted(each func(key, value []byte) error) error {
	sp.entries.eachHash(sp.filter.add)
	sp.memory.sorting.Lock()
	defer sp.memory.sorting.Unlock()
	return sp.entries.sorted(&sp.memory.sorter, each)
}

// Spill calls write, concurrently, to bring the buffer's content to disk. The previous spill must be there (Settle).
func (b *Buffer) Spill(write func(*Spill) error) {
	if b.spill != nil {
		b.older = slices.Insert(b.older, 0, b.spill.entries)
	}
	sp := &Spill{entries: b.recent, filter: b.filter, memory: b.memory, done: make(chan struct{})}
	b.spill = sp
	b.recent = b.vacate()
	b.recent.like(sp.entries)
	go func() {
		defer close(sp.done)
		sp.err = write(sp)
	}()
}

// vacate drops spilled tables beyond the share, the oldest first, and returns an empty table.
func (b *Buffer) vacate() *memtable {
	free := b.memory.share() - b.memory.share()/spillsPerShare - b.spill.entries.held()
	var empty *memtable
	kept := 0
	for _, m := range b.older {
		if free -= m.held(); free >= 0 {
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
		return &memtable{pages: &b.memory.pages}
	}
	empty.reset()
	return empty
}

// Settle waits until the last spill is on disk or has failed. After a failure the buffer is unusable.
func (b *Buffer) Settle() error {
	if b.spill == nil {
		return nil
	}
	<-b.spill.done
	return b.spill.err
}

// Settled reports whether Settle would return at once.
func (b *Buffer) Settled() bool { return b.spill == nil || isClosed(b.spill.done) }

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// filterBuild reads the keys on disk into a filter, concurrently: a second for some million keys, after a start.
type filterBuild struct {
	stop, done chan struct{}
	ok         bool // valid after done: all keys are in it
}

// Open returns a buffer of a store with about n keys on disk. read calls each, concurrently, while that returns true.
func (m *Memory) Open(n uint64, read func(each func(key []byte) bool) error) *Buffer {
	build := &filterBuild{stop: make(chan struct{}), done: make(chan struct{})}
	b := &Buffer{memory: m, seed: maphash.MakeSeed(), recent: &memtable{pages: &m.pages}, filter: newKeyFilter(n),
		build: build, read: build.done}
	m.open.Add(1)
	go func() {
		defer close(build.done)
		var hashes []uint64
		err := read(func(key []byte) bool {
			if hashes = append(hashes, b.hash(key)); len(hashes) < 1024 {
				return true
			}
			b.filter.add(hashes)
			hashes = hashes[:0]
			return !isClosed(build.stop)
		})
		b.filter.add(hashes)
		build.ok = err == nil && !isClosed(build.stop)
	}()
	return b
}

// Close stops the buffer's goroutines and frees its memory. Its content is lost.
func (b *Buffer) Close() {
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
	b.memory.open.Add(-1)
}
