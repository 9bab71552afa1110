package stream

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/stream/kafka"
)

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
	Next kafka.Position
	// Reached is behind all that was fetched, of a tick: there may be control records behind Next. Of other batches it is
	// Next.
	Reached kafka.Position
}
