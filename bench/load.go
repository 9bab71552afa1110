package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// loadBuffer is how many records may wait for Kafka while a topic is filled.
const loadBuffer = 200_000

// Load makes the next n events of a stream and writes them to likes as any well-behaved writer would: in order within a
// partition, in batches as large as the topic takes. It returns when Kafka has them all; progress is told how many were made.
func Load(ctx context.Context, s *Servers, stream *Stream, partitions int32, n int, progress func(done int)) error {
	cl, err := s.client(
		kgo.DefaultProduceTopic(schema.TopicLikes),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(schema.BatchMaxBytes(schema.TopicLikes)),
		kgo.ProducerLinger(10*time.Millisecond), // full batches
		kgo.MaxBufferedRecords(loadBuffer),
	)
	if err != nil {
		return err
	}
	defer cl.Close()
	var failure firstError
	records, batch := newRecords(partitions), 0
	for i := range n {
		rec, err := records.next(stream)
		if err != nil {
			return err
		}
		cl.Produce(ctx, rec, func(_ *kgo.Record, err error) { failure.set(err) })
		if batch++; batch == 50_000 {
			batch = 0
			if err := failure.get(); err != nil {
				break
			}
			progress(i + 1)
		}
	}
	if err := cl.Flush(ctx); err != nil {
		failure.set(err)
	}
	if err := failure.get(); err != nil {
		return fmt.Errorf("loading %s: %w", schema.TopicLikes, err)
	}
	progress(n)
	return nil
}

// firstError keeps the first of the errors that several goroutines meet.
type firstError struct {
	mu  sync.Mutex
	err error
}

func (f *firstError) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *firstError) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// records makes Kafka's records of events. Memory for many of them is taken at once.
type records struct {
	partitions int32
	slab       []kgo.Record
	bytes      []byte
}

const recordSlab = 4096

func newRecords(partitions int32) *records { return &records{partitions: partitions} }

// next is the record of the stream's next event.
func (r *records) next(stream *Stream) (*kgo.Record, error) {
	e, err := stream.Next()
	if err != nil {
		return nil, err
	}
	return r.of(&e), nil
}

// of is an event's record. The record is the caller's.
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
