// Package store keeps state stores: local copies of the partitions of table topics, on Pebble. A store is a cache: it
// is never ahead of the committed log, and rebuilt from it when lost.
//
//	store.go, read.go, open.go   one partition: data and log position in one atomic write
//	catch_up.go                  replays the log to its end
//	set.go                       the stores below one directory, with what they share
//	spill.go, buffer/            the write buffer in front of Pebble, for stores of one goroutine
package store
