//go:build !unix

package store

import "math"

func openFiles() int64 { return math.MaxInt64 }

func tableFiles(int64) int { return 4096 }

// CheckFiles does nothing: there is no limit of open files.
func CheckFiles(int32) error { return nil }
