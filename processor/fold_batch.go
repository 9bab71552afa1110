package processor

import (
	"context"
	"fmt"
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

// Process is the only path of an event: classify, fold, publish, commit.
func (w *foldWorker) Process(ctx context.Context, b *stream.Batch) error {
	if len(b.Records) == 0 {
		return w.idle(ctx, b)
	}
	return w.commitBatch(ctx, b)
}

func (w *foldWorker) commitBatch(ctx context.Context, b *stream.Batch) error {
	epoch := w.LeaderEpoch(schema.TopicState, w.partition) // before an election may lose the records
	x, err := w.Begin(ctx)
	if err != nil {
		return fmt.Errorf("likes/%d up to offset %d: %w", w.partition, b.Next.Offset, err)
	}
	out := &output{partition: w.partition, progress: w.progress, next: b.Next, began: time.Now(),
		store: w.store.NewWrite()}
	err = w.transact(ctx, x, b, out)
	tracing.End(out.spans, err)
	if err != nil {
		x.Drop()
		w.metrics.foldFailed(err, out.committing)
		out.store.Discard() // reopening finds out whether Kafka has it
		return fmt.Errorf("likes/%d up to offset %d: %w", w.partition, b.Next.Offset, err)
	}
	// Only now: on disk, the store is never ahead of the committed log.
	out.store.SetEpoch(epoch)
	if err := out.store.Commit(out.last.Offset); err != nil {
		return err
	}
	w.progress = out.progress
	w.count(len(b.Records), out)
	for _, buffer := range out.buffers {
		w.buffers.Put(buffer) // the client has released it
	}
	return nil
}

// transact folds a batch, in chunks, into a transaction and commits it. Only folding needs the changes of the previous
// chunk; classifying the next chunk and sending the previous one to the client run concurrently:
//
//	classify │ 1 │ 2 │ 3 │
//	fold         │ 1 │ 2 │ 3 │
//	send             │ 1 │ 2 │ 3 │ commit
func (w *foldWorker) transact(ctx context.Context, x *kafka.Transaction, b *stream.Batch, out *output) error {
	classified, sent := w.classify(0, b.Records), func() {}
	// Always wait: nothing may keep working for a batch that is over.
	defer func() { classified(); sent() }()
	missing, err := w.missingCounts(ctx)
	if err != nil {
		return fmt.Errorf("completing %s: %w", schema.TopicCounts, err)
	}
	if len(missing) > 0 {
		x.Send(missing) // before what the batch changes
	}
	for rest, chunk := b.Records, 0; chunk == 0 || len(rest) > 0; chunk++ {
		classified()
		v := &w.classified[chunk%2]
		rest = rest[min(w.FoldChunk, len(rest)):]
		classified = w.classify(chunk+1, rest)
		result, err := w.fold.Fold(v.Events, &table.State{Store: w.store})
		if err != nil {
			return fmt.Errorf("folding: %w", err)
		}
		w.publish(out, v, result, len(rest) == 0)
		records := out.records
		sent()
		sent = w.Concurrently(func() { x.Send(records) })
		// The rest of the batch reads the changes of this chunk.
		out.store.Stage(out.state, func(i int) (key, value []byte) { return records[i].Key, records[i].Value })
	}
	sent()
	out.folded, out.committing = time.Now(), true
	return x.Commit(b.Next)
}

func (w *foldWorker) classify(chunk int, records []*kgo.Record) (wait func()) {
	v := &w.classified[chunk%2]
	return w.Concurrently(func() {
		v.Reset()
		v.Layouts, v.Regions = w.progress.Layouts, w.regions
		v.Voids, v.VoidsFrom = w.progress.Voids, w.progress.VoidsFrom
		for _, rec := range records[:min(w.FoldChunk, len(records))] {
			v.Add(rec, w.layout)
		}
	})
}

// concurrently runs f in a goroutine, and returns a function that waits for its end and may be called repeatedly.
func concurrently(f func()) (wait func()) {
	var running sync.WaitGroup
	running.Go(f)
	return running.Wait
}

func (w *foldWorker) count(records int, out *output) {
	m := w.metrics
	m.events.Add(float64(records))
	m.forwarded.Add(float64(out.forwards))
	m.transitions.Add(float64(out.transitions))
	m.duplicates.Add(float64(out.events - out.transitions))
	m.ahead.Add(float64(out.ahead))
	m.capped.Add(float64(out.capped))
	m.badRegions.Add(float64(out.badRegions))
	m.updates.Add(float64(out.updates))
	m.transactions.Inc()
	m.batchRecords.WithLabelValues(schema.GroupFold).Observe(float64(records))
	m.foldSeconds.Observe(out.folded.Sub(out.began).Seconds())
	m.kafkaCommitSeconds.Observe(time.Since(out.folded).Seconds())
	for _, reason := range out.reasons {
		m.deadLetters.WithLabelValues(string(reason)).Inc()
	}
	if n := len(out.deadLetters); n > 0 { // one line per batch: a burst of invalid events must not slow the partition
		first := out.deadLetters[0]
		w.log.Warn("dead letters", "topic", schema.TopicLikes, "partition", w.partition, "count", n,
			"first_offset", classify.Header(first, schema.HeaderDLTOffset),
			"first_error", classify.Header(first, schema.HeaderDLTError))
	}
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
	ahead                                 int
	deadLetters                           []*kgo.Record
	reasons                               []schema.PoisonReason
	spans                                 []trace.Span // of the events that are traced
}

// recordBuffer holds a chunk's records in two slices. Buffers are pooled: allocating them costs more than filling them.
type recordBuffer struct {
	records []kgo.Record
	bytes   []byte
}

// publish encodes the records of a chunk; the progress comes after the last one.
func (w *foldWorker) publish(out *output, v *classify.Classified, r *fold.Result, last bool) {
	out.events += len(v.Events) - r.Voiding
	out.transitions += r.Transitions
	out.forwards += len(v.Forwards)
	out.ahead += v.Ahead
	out.capped += v.Capped
	out.badRegions += v.BadRegions
	out.deadLetters = append(out.deadLetters, v.DeadLetters...)
	out.reasons = append(out.reasons, v.Reasons...)
	n := len(r.Voids) + len(r.Pairs) + 2*len(r.Counts) + len(r.Updates) + len(v.Forwards) + len(v.DeadLetters) + 3
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
		if out.next.Offset > out.progress.NextOffset { // otherwise the batch is empty: it only completes like-counts
			out.addUpdate([]byte(schema.ProgressKey), schema.ProgressUpdate(out.progress.Layouts, false))
		}
		out.progress.NextOffset, out.progress.LeaderEpoch = out.next.Offset, out.next.Epoch
		out.last.Value = schema.AppendProgress(nil, &out.progress)
	}
	for i, rec := range out.records[len(r.Voids)+len(r.Pairs) : out.state] { // of the state table: counts, progress
		counts := out.add(schema.TopicCounts, rec.Key, rec.Value)
		if rec == out.last {
			if len(w.uncounted) > 0 {
				counts.Value = nil
			}
		} else if span, ok := posts[r.Counts[i].PostID]; ok {
			tracing.GiveTo(counts, span.SpanContext())
		}
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

func (out *output) addState(r *fold.Result, pairs map[fold.PairKey]trace.Span) {
	for _, u := range r.Voids {
		key := out.slice(schema.AppendVoidKey(out.bytes, u.UserID))
		out.add(schema.TopicState, key, out.slice(schema.AppendVoid(out.bytes, u.Void)))
	}
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

func (out *output) addUpdates(r *fold.Result, layout schema.Layout, posts map[uint64]trace.Span) {
	for i := range r.Updates {
		u := &r.Updates[i]
		key := out.slice(schema.AppendPostKey(out.bytes, u.PostID))
		all := schema.Update{Counts: u.Counts, Deltas: u.Deltas, Buckets: layout.Buckets(u.PostID)}
		for update := range all.Split() {
			rec := out.addUpdate(key, update)
			if span, ok := posts[u.PostID]; ok {
				tracing.GiveTo(rec, span.SpanContext())
			}
		}
	}
}

func (out *output) addUpdate(key []byte, u schema.Update) *kgo.Record {
	u.Seq, u.SourceOffset = out.progress.NextSeq, out.next.Offset
	out.progress.NextSeq++
	out.updates++
	return out.add(schema.TopicUpdates, key, out.slice(schema.AppendUpdate(out.bytes, &u)))
}

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
