package stream

import (
	"github.com/twmb/franz-go/pkg/kgo"
)

// Position is where to go on in a partition: the next offset to read, and the
// leader epoch of the record before it (-1: not known), by which Kafka tells a log
// that was truncated and written again from the one that the offset speaks of.
type Position struct {
	Offset int64 `json:"offset"`
	Epoch  int32 `json:"leader_epoch"`
}

// Batch is what a partition has to offer at one time: everything that arrived while
// the batch before was worked on, up to the configured maximum. It has no records
// when it is a tick, which comes at an interval while nothing arrives.
type Batch struct {
	Topic     string
	Partition int32
	// Records in offset order, control records left out. Offsets may have holes. They are
	// the worker's until Process returns; their keys and values for longer.
	Records []*kgo.Record
	// Next is the position after the batch.
	Next Position
}
