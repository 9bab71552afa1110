// Package store keeps the local copies of table topics' partitions, on Pebble. A copy is a cache: never ahead of the
// committed log, and read again from it when it is lost.
//
//	store.go, read.go, open.go   one partition: data and log position in one atomic write
//	catch_up.go                  brings one up to the end of its log
//	set.go                       those below one folder, with what they share
//	buffer.go, memtable.go …     what was written last, before Pebble has it: for stores of one goroutine
package store
