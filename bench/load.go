package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

const (
	loadBuffer = 200_000               // records that the client may buffer while a topic is filled
	loadLinger = 10 * time.Millisecond // long enough to fill batches
	loadStep   = 50_000                // events between progress reports
)

// fill writes the events of the run to likes as any well-behaved producer would: in order within a partition, in
// batches as large as the topic allows. It returns when Kafka has acknowledged all of them.
func (r *run) fill(ctx context.Context) error {
	cl, err := r.servers.writer(loadLinger, loadBuffer)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, fail := context.WithCancelCause(ctx) // with the first failure as cause
	defer fail(nil)
	records := records{partitions: r.load.Shape.Partitions}
	for i := range r.load.Events {
		e, err := r.stream.Next()
		if err != nil {
			return err
		}
		cl.Produce(ctx, records.of(&e), func(_ *kgo.Record, err error) {
			if err != nil {
				fail(err)
			}
		})
		if done := i + 1; done%loadStep == 0 || done == r.load.Events {
			if ctx.Err() != nil {
				break
			}
			r.progress(fmt.Sprintf("%d of %d events loaded", done, r.load.Events))
		}
	}
	if cl.Flush(ctx) != nil || ctx.Err() != nil {
		return fmt.Errorf("loading %s: %w", schema.TopicLikes, context.Cause(ctx))
	}
	return nil
}

// records encodes events as Kafka records. It allocates them in slabs.
type records struct {
	partitions int32
	slab       []kgo.Record
	bytes      []byte
}

const recordSlab = 4096

// of encodes an event. The caller owns the record.
func (r *records) of(e *schema.Event) *kgo.Record {
	if len(r.slab) == 0 {
		r.slab = make([]kgo.Record, recordSlab)
		r.bytes = make([]byte, 0, recordSlab*64)
	}
	rec := &r.slab[0]
	r.slab = r.slab[1:]
	n := len(r.bytes)
	r.bytes = schema.AppendPostKey(r.bytes, e.PostID)
	m := len(r.bytes)
	r.bytes = schema.AppendEvent(r.bytes, e)
	rec.Key, rec.Value = r.bytes[n:m:m], r.bytes[m:len(r.bytes):len(r.bytes)]
	rec.Partition = schema.PartitionFor(e.PostID, r.partitions)
	return rec
}
