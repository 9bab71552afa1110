package processor

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"

	"kudos/processor/fold"
	"kudos/processor/fold/classify"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/kafka/tracing"
	"kudos/stream/store"
)

// transact folds a batch, in chunks, into a transaction and commits it. Only folding needs the changes of the previous
// chunk; classifying the next chunk and sending the previous one to the client run concurrently:
//
//	classify │ 1 │ 2 │ 3 │
//	fold         │ 1 │ 2 │ 3 │
//	send             │ 1 │ 2 │ 3 │ commit
func (w *foldWorker) transact(x *kafka.Transaction, b *stream.Batch, out *output) error {
	classified, sent := w.classify(0, b.Records), func() {}
	// Always wait: nothing may keep working for a batch that is over.
	defer func() { classified(); sent() }()
	for rest, chunk := b.Records, 0; len(rest) > 0; chunk++ {
		classified()
		v := &w.classified[chunk%2]
		rest = rest[min(w.FoldAtATime, len(rest)):]
		classified = w.classify(chunk+1, rest)
		result, err := w.fold.Fold(v.Events, &table.State{Store: w.store})
		if err != nil {
			return fmt.Errorf("folding: %w", err)
		}
		w.publish(out, v, result, len(rest) == 0)
		records := out.records
		sent()
		sent = w.Beside(func() { x.Send(records) })
		// The rest of the batch reads the changes of this chunk.
		out.store.Stage(out.state, func(i int) (key, value []byte) { return records[i].Key, records[i].Value })
	}
	sent()
	out.folded, out.committing = time.Now(), true
	return x.Commit(b.Next)
}

// classify starts to classify the first chunk of records, and returns a function that waits for it.
func (w *foldWorker) classify(chunk int, records []*kgo.Record) (wait func()) {
	v := &w.classified[chunk%2]
	return w.Beside(func() {
		v.Reset()
		v.Layouts = w.progress.Layouts
		for _, rec := range records[:min(w.FoldAtATime, len(records))] {
			v.Add(rec, w.layout)
		}
	})
}

// beside runs f in a goroutine, and returns a function that waits for its end and may be called repeatedly.
func beside(f func()) (wait func()) {
	var running sync.WaitGroup
	running.Go(f)
	return running.Wait
}

// output is what a batch publishes, a chunk at a time.
type output struct {
	partition int32
	next      kafka.Position // after the batch

	records []*kgo.Record // of the chunk, those for the state table first
	state   int           // how many of records are for the state table
	last    *kgo.Record   // the progress record of the batch
	store   *store.Write  // changes of the local state store

	free    []kgo.Record // unused part of the chunk's buffer
	bytes   []byte       // used part of the chunk's buffer
	buffers []*recordBuffer

	// began is when the batch started, folded when the client had all of its records. Since then it is committing.
	began, folded time.Time
	committing    bool

	progress                              schema.Progress
	events, transitions                   int // folded; those that changed a reaction
	updates, forwards, capped, badRegions int
	deadLetters                           []*kgo.Record
	reasons                               []schema.PoisonReason
	spans                                 []trace.Span // of the events that are traced
}

// recordBuffer holds the records of one chunk: one slice each for records and bytes, not two for every record. Buffers
// are pooled: allocating them costs more than filling them.
type recordBuffer struct {
	records []kgo.Record
	bytes   []byte
}

// publish encodes the records of a chunk; the progress comes after the last one.
func (w *foldWorker) publish(out *output, v *classify.Classified, r *fold.Result, last bool) {
	out.events += len(v.Events)
	out.transitions += r.Transitions
	out.forwards += len(v.Forwards)
	out.capped += v.Capped
	out.badRegions += v.BadRegions
	out.deadLetters = append(out.deadLetters, v.DeadLetters...)
	out.reasons = append(out.reasons, v.Reasons...)
	n := len(r.Pairs) + len(r.Counts) + len(r.Updates) + len(v.Forwards) + len(v.DeadLetters) + 2
	out.records = make([]*kgo.Record, 0, n)
	buffer := w.buffers.Get().(*recordBuffer)
	out.buffers = append(out.buffers, buffer)
	if len(buffer.records) < n {
		buffer.records = make([]kgo.Record, n+n/4)
	}
	out.free, out.bytes = buffer.records, buffer.bytes[:0]

	posts, pairs := out.trace(v)
	out.addState(r, pairs)
	if last {
		out.last = out.add(schema.TopicState, []byte(schema.StateProgressKey), nil) // value below
	}
	out.state = len(out.records)
	out.addUpdates(r, w.layout, posts)
	if last {
		out.addUpdate([]byte(schema.ProgressKey), schema.ProgressUpdate(out.progress.Layouts, false))
		out.progress.NextOffset, out.progress.LeaderEpoch = out.next.Offset, out.next.Epoch
		out.last.Value = schema.AppendProgress(nil, &out.progress)
	}
	out.records = append(out.records, v.Forwards...)
	out.records = append(out.records, v.DeadLetters...)
	buffer.bytes = out.bytes
}

// trace adds the spans of a chunk's traced events, and returns the last one of each post and each pair.
func (out *output) trace(v *classify.Classified) (posts map[uint64]trace.Span, pairs map[fold.PairKey]trace.Span) {
	if len(v.Traced) == 0 {
		return nil, nil
	}
	posts, pairs = map[uint64]trace.Span{}, map[fold.PairKey]trace.Span{}
	for _, t := range v.Traced {
		out.spans = append(out.spans, t.Span)
		posts[t.Key.PostID], pairs[t.Key] = t.Span, t.Span
	}
	return posts, pairs
}

// addState adds the pairs and counts that have changed.
func (out *output) addState(r *fold.Result, pairs map[fold.PairKey]trace.Span) {
	for i := range r.Pairs {
		p := &r.Pairs[i]
		key := out.slice(schema.AppendPairKey(out.bytes, p.Key.PostID, p.Key.UserID))
		rec := out.add(schema.TopicState, key, out.slice(schema.AppendPair(out.bytes, &p.Pair)))
		if span, ok := pairs[p.Key]; ok {
			tracing.GiveTo(rec, span.SpanContext())
		}
	}
	for _, c := range r.Counts {
		key := out.slice(schema.AppendCountsKey(out.bytes, c.PostID))
		out.add(schema.TopicState, key, out.slice(schema.AppendCounts(out.bytes, c.Counts)))
	}
}

// addUpdates adds the net changes of posts.
func (out *output) addUpdates(r *fold.Result, layout schema.Layout, posts map[uint64]trace.Span) {
	for i := range r.Updates {
		u := &r.Updates[i]
		key := out.slice(schema.AppendPostKey(out.bytes, u.PostID))
		for deltas := range slices.Chunk(u.Deltas, schema.MaxDeltas) {
			update := schema.Update{Counts: u.Counts, Deltas: deltas, Buckets: layout.Buckets(u.PostID)}
			rec := out.addUpdate(key, update)
			if span, ok := posts[u.PostID]; ok {
				tracing.GiveTo(rec, span.SpanContext())
			}
		}
	}
}

// addUpdate adds an update with the next sequence number.
func (out *output) addUpdate(key []byte, u schema.Update) *kgo.Record {
	u.Seq, u.SourceOffset = out.progress.NextSeq, out.next.Offset
	out.progress.NextSeq++
	out.updates++
	return out.add(schema.TopicUpdates, key, out.slice(schema.AppendUpdate(out.bytes, &u)))
}

// slice returns what was appended to out.bytes.
func (out *output) slice(bytes []byte) []byte {
	n := len(out.bytes)
	out.bytes = bytes
	return bytes[n:len(bytes):len(bytes)]
}

func (out *output) add(topic string, key, value []byte) *kgo.Record {
	if len(out.free) == 0 { // updates with many deltas take several records
		out.free = make([]kgo.Record, 64)
	}
	rec := &out.free[0]
	out.free = out.free[1:]
	*rec = kgo.Record{Topic: topic, Partition: out.partition, Key: key, Value: value}
	out.records = append(out.records, rec)
	return rec
}
