package stream

import (
	"math/bits"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordPool makes the client reuse records of processed batches (see recycle), most of what a partition allocates.
type recordPool struct{ slabs sync.Pool } // of *[]kgo.Record

// GetRecords returns at least n records. It implements kgo.PoolRecords.
func (p *recordPool) GetRecords(n int) []kgo.Record {
	if slab, ok := p.slabs.Get().(*[]kgo.Record); ok && cap(*slab) >= n {
		return *slab
	}
	// A slab that is too small is not put back: the next batch gets it. Rounding up (by 25% at most) makes that rare.
	unit := 1 << max(0, bits.Len(uint(n))-3)
	return make([]kgo.Record, (n+unit-1)/unit*unit)
}

// PutRecords puts a slab back.
func (p *recordPool) PutRecords(slab []kgo.Record) { p.slabs.Put(&slab) }

// recycle returns the records of a batch to their client's pool. Nobody may keep a record; keys and values may be kept.
func recycle(records []*kgo.Record) {
	for _, rec := range records {
		rec.Recycle()
	}
}
