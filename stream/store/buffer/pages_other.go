//go:build !linux

package buffer

func mapPages(size int) []byte { return make([]byte, size) }

func unmapPages([]byte) {}
