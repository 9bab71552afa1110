//go:build unix

package store

import (
	"fmt"
	"math"
	"syscall"
)

const (
	// partitionFiles are for a store's log, lock and what it is writing, and for the connections of its worker's
	// clients, each to several brokers.
	partitionFiles = 16
	otherFiles     = 256 // requests, MySQL, the other clients
	maxTableFiles  = 4096
)

// openFiles returns the limit of open files of this process. Go has raised it as far as it may.
func openFiles() int64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt64
	}
	return int64(min(uint64(limit.Cur), math.MaxInt64))
}

// tableFiles is how many files of tables the stores of a set keep open: others are opened when they are read.
func tableFiles(limit int64) int { return int(max(64, min(limit/8, maxTableFiles))) }

// CheckFiles returns an error if the limit of open files is too low for a process that may own all of these partitions.
func CheckFiles(partitions int32) error { return checkFiles(partitions, openFiles()) }

func checkFiles(partitions int32, limit int64) error {
	need := otherFiles + partitionFiles*int64(partitions)
	if have := limit - int64(tableFiles(limit)); need > have {
		for limit < need+int64(tableFiles(limit)) {
			limit *= 2
		}
		return fmt.Errorf("%d partitions may need more open files than this process may have: allow %d (LimitNOFILE "+
			"of systemd, ulimit -n of a shell, --ulimit nofile of a container), and restart it", partitions, limit)
	}
	return nil
}
