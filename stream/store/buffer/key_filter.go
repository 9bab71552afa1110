package buffer

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/greatroar/blobloom"
)

// keyFilter is a Bloom filter that grows: a list of filters, each several times as large as the one before, so that
// they are few. Any number of goroutines may add and ask. It uses the 32 bits of a key's hash that a memtable keeps,
// which are enough: among 10,000,000 keys, 0.2 % of the absent keys find an equal hash.
type keyFilter struct {
	parts atomic.Pointer[[]*blobloom.SyncFilter]
	keys  atomic.Uint64 // added so far

	mu   sync.Mutex // held to add keys
	free uint64     // free capacity of the last filter, in keys
	next uint64     // capacity of the next filter, in keys
}

const (
	minFilterKeys = 1 << 18
	filterGrowth  = 4
	maxFilterKeys = 1 << 26
	filterError   = 0.01 // the rate of false positives: useless lookups on disk
)

func newKeyFilter(keys uint64) *keyFilter {
	f := &keyFilter{next: max(keys, minFilterKeys)}
	f.parts.Store(&[]*blobloom.SyncFilter{})
	return f
}

// spread expands the 32 bits to a filter's hash: they select the block of the filter, and all of them the bits in it.
func spread(hash uint64) uint64 {
	h := uint64(uint32(hash))
	return h*0x9e3779b97f4a7c15&^0xffffffff | h
}

// mayHave is false only for keys that were not added.
func (f *keyFilter) mayHave(hash uint64) bool {
	h := spread(hash)
	return slices.ContainsFunc(*f.parts.Load(), func(p *blobloom.SyncFilter) bool { return p.Has(h) })
}

// mayHaveOf is mayHave of up to 64 keys, one bit each; their memory reads overlap.
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

// add adds keys, except those that seem to be there.
func (f *keyFilter) add(hashes []uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	added := uint64(0)
	defer func() { f.keys.Add(added) }()
	for _, hash := range hashes {
		if f.mayHave(hash) {
			continue
		}
		if f.free == 0 {
			part := blobloom.NewSyncOptimized(blobloom.Config{Capacity: f.next, FPRate: filterError})
			parts := append(slices.Clone(*f.parts.Load()), part)
			f.parts.Store(&parts)
			f.free, f.next = f.next, min(filterGrowth*f.next, maxFilterKeys)
		}
		f.free--
		added++
		parts := *f.parts.Load()
		parts[len(parts)-1].Add(spread(hash))
	}
}
