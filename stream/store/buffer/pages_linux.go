package buffer

import "golang.org/x/sys/unix"

// mapPages returns zeroed memory; size is a multiple of the page size.
func mapPages(size int) []byte {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return make([]byte, size) // Go's allocator reports it if there is no memory
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // a hint: without it, access is only slower
	return b
}

func unmapPages(b []byte) {
	_ = unix.Munmap(b) // fails only for memory of Go's allocator, which is the garbage collector's
}
