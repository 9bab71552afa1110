package stream

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/greatroar/blobloom"
)

// keyFilter tells of nearly every key that is not there that it is not: Bloom filters,
// each with several times the room of the one before, so that they grow with what is
// there and are few. Any number of goroutines may add and ask.
type keyFilter struct {
	parts atomic.Pointer[[]*blobloom.SyncFilter]

	mu   sync.Mutex // of those who add
	room uint64     // in the last one, in keys
	next uint64     // keys of the next one
}

const (
	minFilterKeys = 1 << 18
	filterGrowth  = 4
	maxFilterKeys = 1 << 26
	// filterError is how often a key passes that is not there: a look-up in vain.
	filterError = 0.01
)

// newKeyFilter has room for so many keys, and makes more when it is needed.
func newKeyFilter(keys uint64) *keyFilter {
	f := &keyFilter{next: max(keys, minFilterKeys)}
	f.parts.Store(&[]*blobloom.SyncFilter{})
	return f
}

// mayHave is false only for keys that were not added.
func (f *keyFilter) mayHave(hash uint64) bool {
	return slices.ContainsFunc(*f.parts.Load(), func(p *blobloom.SyncFilter) bool { return p.Has(hash) })
}

// touch has what mayHave of these hashes reads come into the cache, all at once.
func (f *keyFilter) touch(hashes []uint64) (any uint64) {
	for _, p := range *f.parts.Load() {
		for _, hash := range hashes {
			if p.Has(hash) {
				any++
			}
		}
	}
	return any
}

// add adds keys, but those that seem to be there.
func (f *keyFilter) add(hashes []uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, hash := range hashes {
		if f.mayHave(hash) {
			continue
		}
		if f.room == 0 {
			part := blobloom.NewSyncOptimized(blobloom.Config{Capacity: f.next, FPRate: filterError})
			parts := append(slices.Clone(*f.parts.Load()), part)
			f.parts.Store(&parts)
			f.room, f.next = f.next, min(filterGrowth*f.next, maxFilterKeys)
		}
		f.room--
		parts := *f.parts.Load()
		parts[len(parts)-1].Add(hash)
	}
}
