package stream

import (
	"math/bits"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordPool has the client use the records of worked-off batches again (see recycle):
// of all that a partition takes in, they are the most memory.
type recordPool struct{ slabs sync.Pool } // of *[]kgo.Record

// GetRecords returns memory for n records at least. It implements kgo.PoolRecords.
func (p *recordPool) GetRecords(n int) []kgo.Record {
	if slab, ok := p.slabs.Get().(*[]kgo.Record); ok && cap(*slab) >= n {
		return *slab
	}
	// A slab that is too small is not put back: the next batch would get it, too. Few
	// sizes make that rare, and waste a fourth at most.
	unit := 1 << max(0, bits.Len(uint(n))-3)
	return make([]kgo.Record, (n+unit-1)/unit*unit)
}

// PutRecords takes it back.
func (p *recordPool) PutRecords(slab []kgo.Record) { p.slabs.Put(&slab) }

// recycle gives the records of a batch back to the client that they came from. Nobody may
// keep one; keys and values may be kept.
func recycle(records []*kgo.Record) {
	for _, rec := range records {
		rec.Recycle()
	}
}
