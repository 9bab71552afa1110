//go:build !linux

package store

func mapPages(size int) []byte { return make([]byte, size) }

func unmapPages([]byte) {}
