//go:build !linux

package stream

func mapPages(size int) []byte { return make([]byte, size) }

func unmapPages([]byte) {}
