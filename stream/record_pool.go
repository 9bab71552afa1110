package stream

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordPool has the client use the records of worked-off batches again (see recycle):
// of all that a partition takes in, they are the most memory.
type recordPool struct{ slabs sync.Pool } // of *[]kgo.Record

// GetRecords returns memory for n records at least. It implements kgo.PoolRecords.
func (p *recordPool) GetRecords(n int) []kgo.Record {
	slab, ok := p.slabs.Get().(*[]kgo.Record)
	if !ok {
		return make([]kgo.Record, n)
	}
	if cap(*slab) < n {
		p.slabs.Put(slab) // one of the many sizes is for a smaller batch
		return make([]kgo.Record, n)
	}
	return *slab
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
