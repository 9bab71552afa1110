package buffer

import (
	"sync"
	"unsafe"
)

// pages is memory for memtables outside the garbage collector, in huge pages where available. With small pages, random
// lookups wait for the page tables, and the first use of a page costs as much as all that is done with it.
type pages struct {
	small bool // not worth it: use Go's allocator

	mu   sync.Mutex
	free [][]byte // chunks
	all  [][]byte // mappings of chunks
}

const (
	chunkBits    = 20 // a place is the number of a chunk and an offset in it of so many bits
	chunkSize    = 1 << chunkBits
	hugePage     = 2 << 20
	mappedChunks = 8        // how many chunks are mapped at once
	minPaged     = 64 << 20 // the size of the buffers, in bytes, from which on it is worth it
)

// chunk returns an empty chunk with a capacity of at least size bytes.
func (p *pages) chunk(size int) []byte {
	if p.small || size > chunkSize {
		return make([]byte, 0, max(size, chunkSize))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		mapping := mapPages(mappedChunks * chunkSize)
		p.all = append(p.all, mapping)
		for len(mapping) > 0 {
			p.free = append(p.free, mapping[:0:chunkSize])
			mapping = mapping[chunkSize:]
		}
	}
	last := len(p.free) - 1
	chunk := p.free[last]
	p.free = p.free[:last]
	return chunk
}

// giveBack frees chunks that nobody reads any more.
func (p *pages) giveBack(chunks [][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range chunks {
		if !p.small && cap(c) == chunkSize { // a larger one is the garbage collector's
			p.free = append(p.free, c[:0])
		}
	}
}

func (p *pages) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, mapping := range p.all {
		unmapPages(mapping)
	}
	p.all, p.free = nil, nil
}

func mapSlots(n int) []uint64 {
	if 8*n < hugePage {
		return make([]uint64, n)
	}
	b := mapPages(8 * n)
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

func unmapSlots(s []uint64) {
	if 8*len(s) >= hugePage {
		unmapPages(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 8*len(s)))
	}
}
