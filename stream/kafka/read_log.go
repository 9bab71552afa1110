package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// LogChunk is what one fetch covered: committed records in offset order, and the offset that follows them and the
// control records, aborted records and holes between them. End is the last stable offset as of that fetch, and never
// before the one that ListOffsets gave at the start.
type LogChunk struct {
	Records   []*kgo.Record
	Next, End int64
}

// endWait is how long a fetch at the end of the log waits there for news.
const endWait = 250 * time.Millisecond

// readLogPatience is how long ReadLog goes on without an answer, before it says so.
const readLogPatience = 30 * time.Second

// ReadLog reads the committed records of a partition from an offset on and hands them to each, until each returns false
// or fails. At the end of the log each is called with chunks that have no records, a few times a second: it decides
// when to stop. That a position has been reached is told by LogChunk.Next; a record may not be there (control records,
// compaction).
func ReadLog(
	ctx context.Context, cl kmsg.Requestor, topic string, partition int32, from int64,
	each func(LogChunk) (more bool, err error),
) error {
	return NewLogReader(cl, topic, partition).Read(ctx, from, each)
}

// ReadLogSmall is ReadLog with small fetches: for who reads all partitions beside each
// other, each with the memory of a fetch.
func ReadLogSmall(
	ctx context.Context, cl kmsg.Requestor, topic string, partition int32, from int64,
	each func(LogChunk) (more bool, err error),
) error {
	r := NewLogReader(cl, topic, partition)
	r.fetchBytes = smallFetchBytes
	return r.Read(ctx, from, each)
}

// Read is ReadLog.
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
			r.maxWait = endWait // do not ask in a tight loop for what is not there yet
		}
	}
}
