package stream

import "github.com/greatroar/blobloom"

// keyFilter tells of nearly every key that is not there that it is not: Bloom filters,
// each with twice the room of the one before, so that they grow with what is there.
type keyFilter struct {
	parts []*blobloom.Filter
	room  uint64 // in the last one, in keys
	next  uint64 // keys of the next one
}

const (
	minFilterKeys = 1 << 16
	// filterError is how often a key passes that is not there: a look-up in vain.
	filterError = 0.01
)

// newKeyFilter has room for so many keys, and makes more when it is needed.
func newKeyFilter(keys uint64) *keyFilter { return &keyFilter{next: max(keys, minFilterKeys)} }

// mayHave is false only for keys that were not added.
func (f *keyFilter) mayHave(hash uint64) bool {
	for _, p := range f.parts {
		if p.Has(hash) {
			return true
		}
	}
	return false
}

// add adds a key, unless it seems to be there.
func (f *keyFilter) add(hash uint64) {
	if f.mayHave(hash) {
		return
	}
	if f.room == 0 {
		f.parts = append(f.parts, blobloom.NewOptimized(blobloom.Config{Capacity: f.next, FPRate: filterError}))
		f.room, f.next = f.next, 2*f.next
	}
	f.room--
	f.parts[len(f.parts)-1].Add(hash)
}
