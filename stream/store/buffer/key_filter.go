package buffer

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/greatroar/blobloom"
)

// keyFilter tells of nearly every key that is not there that it is not: Bloom filters, each with several times the room
// of the one before, so that they grow with what is there and are few. Any number of goroutines may add and ask. Of a
// key's hash it takes the 32 bits that a memtable keeps, which are enough: of 10,000,000 keys, others' hashes are the
// same as one's in 0.2 %.
type keyFilter struct {
	parts atomic.Pointer[[]*blobloom.SyncFilter]
	keys  atomic.Uint64 // that were added

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

// spread makes a filter's hash of the 32 bits: they say which block of the filter, and all of
// them which bits of the block.
func spread(hash uint64) uint64 {
	h := uint64(uint32(hash))
	return h*0x9e3779b97f4a7c15&^0xffffffff | h
}

// mayHave is false only for keys that were not added.
func (f *keyFilter) mayHave(hash uint64) bool {
	h := spread(hash)
	return slices.ContainsFunc(*f.parts.Load(), func(p *blobloom.SyncFilter) bool { return p.Has(h) })
}

// mayHaveOf is mayHave of up to 64 keys, a bit for each; their reads wait for memory together.
func (f *keyFilter) mayHaveOf(hashes []uint64) (which uint64) {
	for _, p := range *f.parts.Load() {
		for i, hash := range hashes {
			if p.Has(spread(hash)) {
				which |= 1 << i
			}
		}
	}
	return which
}

// add adds keys, but those that seem to be there.
func (f *keyFilter) add(hashes []uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	added := uint64(0)
	defer func() { f.keys.Add(added) }()
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
		added++
		parts := *f.parts.Load()
		parts[len(parts)-1].Add(spread(hash))
	}
}
