package buffer

import (
	"sync"
	"unsafe"
)

// pages is memory for memtables, in huge pages where the system has them and not of the
// garbage collector: what is looked up there at random would wait for the page tables else,
// and each first use of a small page costs as much as all that is done with it.
type pages struct {
	small bool // not worth it: Go's allocator has it all

	mu   sync.Mutex
	free [][]byte // chunks
	all  [][]byte // mappings of chunks
}

const (
	chunkBits = 20 // a place is a chunk's number and an offset in it of so many bits
	chunkSize = 1 << chunkBits
	hugePage  = 2 << 20
	// mappedChunks are mapped at a time.
	mappedChunks = 8
	// minPaged is from how many bytes of buffers on it is worth it.
	minPaged = 64 << 20
)

// chunk returns an empty one.
func (p *pages) chunk() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.small {
		return make([]byte, 0, chunkSize)
	}
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

// giveBack takes chunks that nobody reads any more.
func (p *pages) giveBack(chunks [][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range chunks {
		if !p.small && cap(c) == chunkSize { // a larger one is the garbage collector's
			p.free = append(p.free, c[:0])
		}
	}
}

// close gives all back to the system.
func (p *pages) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, mapping := range p.all {
		unmapPages(mapping)
	}
	p.all, p.free = nil, nil
}

// mapSlots returns n zeros.
func mapSlots(n int) []uint64 {
	if 8*n < hugePage {
		return make([]uint64, n)
	}
	b := mapPages(8 * n)
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// unmapSlots gives back what mapSlots returned.
func unmapSlots(s []uint64) {
	if 8*len(s) >= hugePage {
		unmapPages(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 8*len(s)))
	}
}
