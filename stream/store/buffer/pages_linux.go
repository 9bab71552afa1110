package buffer

import "golang.org/x/sys/unix"

// mapPages returns zeros, a multiple of the page size of them.
func mapPages(size int) []byte {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return make([]byte, size) // let Go's allocator say that there is no memory, if so
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // a wish: without it, it is only slower
	return b
}

func unmapPages(b []byte) {
	_ = unix.Munmap(b) // fails only for what was not mapped, which is the garbage collector's
}
