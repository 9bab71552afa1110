package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// LogChunk is what one fetch covered: committed records in offset order, and in Next the offset after them and after
// the control records, aborted records and holes between them. End is the last stable offset as of that fetch, and
// never below the one that ListOffsets returned at the start.
type LogChunk struct {
	Records   []*kgo.Record
	Next, End int64
}

const endWait = 250 * time.Millisecond // how long a fetch at the end of the log waits for new data

const readLogPatience = 30 * time.Second // how long ReadLog retries a fetch before it returns the error

// ReadLog reads the committed records of a partition from an offset on and passes them to each, until each returns
// false or an error. At the end of the log it calls each a few times a second with empty chunks: each decides when to
// stop. LogChunk.Next tells whether an offset was reached; a record at it may not exist (control records, compaction).
func ReadLog(
	ctx context.Context, cl kmsg.Requestor, topic string, partition int32, from int64,
	each func(LogChunk) (more bool, err error),
) error {
	return NewLogReader(cl, topic, partition).Read(ctx, from, each)
}

// ReadLogSmall is ReadLog with small fetches, for concurrent reads of all partitions, each with the memory of a fetch.
func ReadLogSmall(
	ctx context.Context, cl kmsg.Requestor, topic string, partition int32, from int64,
	each func(LogChunk) (more bool, err error),
) error {
	r := NewLogReader(cl, topic, partition)
	r.fetchBytes = smallFetchBytes
	return r.Read(ctx, from, each)
}

// Read is ReadLog with this reader.
func (r *LogReader) Read(ctx context.Context, from int64, each func(LogChunk) (more bool, err error)) error {
	for next := from; ; {
		fetchCtx, cancel := context.WithTimeout(ctx, readLogPatience)
		f, err := r.Fetch(fetchCtx, next)
		cancel()
		if err != nil {
			return err
		}
		next = f.Next
		if more, err := each(f); err != nil || !more {
			return err
		}
		r.maxWait = 0
		if next >= f.End {
			r.maxWait = endWait // do not poll in a tight loop
		}
	}
}
