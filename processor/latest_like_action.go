package processor

import (
	"context"
	"fmt"
	"log/slog"
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

// folder is the worker of latest-like-action for one partition.
type folder struct {
	partition int32
	member    kafka.Member
	opts      *Options
	kafka     kafka.Clients
	stores    *store.Set
	metrics   *metrics
	log       *slog.Logger
	atATime   int                        // see Workers
	beside    func(func()) (wait func()) // see Workers
	rooms     *sync.Pool                 // of *recordRoom

	txn        *kafka.Txn
	store      *store.Store
	progress   schema.Progress
	layout     schema.Layout // of progress
	classified [2]classify.Classified
	fold       fold.Folder
}

// Fence initialises the partition's transactional id, before anything is read.
func (w *folder) Fence(ctx context.Context) error {
	cl, err := w.kafka.Connect(w.log)
	if err != nil {
		return err
	}
	defer cl.Close()
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicLikes)
	if err != nil {
		return err
	}
	w.txn = kafka.NewTxn(kafka.TxnOptions{
		ID:            schema.FoldTransactionalID(w.partition),
		Member:        w.member,
		Source:        kafka.LogPartition{Topic: schema.TopicLikes, TopicID: topics.ByName[schema.TopicLikes].ID, Partition: w.partition},
		Timeout:       w.opts.TransactionTimeout,
		BatchMaxBytes: schema.BatchMaxBytes,
		Kafka:         w.kafka,
	}, w.log)
	return w.txn.Fence(ctx)
}

// Open brings the state table up to the end of its changelog, which nobody else can
// move any more, and takes the position from the progress record in it.
func (w *folder) Open(ctx context.Context) (kafka.Position, error) {
	w.store = w.stores.Get(schema.TopicState, w.partition)
	if err := w.store.CatchUp(ctx, w.txn.Client(), schema.TopicState, w.partition); err != nil {
		return kafka.Position{}, err
	}
	progress, ok, err := table.ReadProgress(w.store)
	if err != nil {
		return kafka.Position{}, err
	}
	if !ok {
		return kafka.Position{}, stream.Park(stream.CauseState, table.ActionApply, table.NoProgress, w.partition)
	}
	if err := w.verify(ctx, &progress); err != nil {
		return kafka.Position{}, w.unlessTaken(ctx, err)
	}
	w.progress, w.layout = progress, progress.Layout()
	return kafka.Position{Offset: progress.NextOffset, Epoch: progress.LeaderEpoch}, nil
}

// unlessTaken is err only if the partition surely still is ours. If another process took it
// since Fence (ErrFenced), or that is not known, what that one has done since may not fit
// what was read before, and nothing is wrong.
func (w *folder) unlessTaken(ctx context.Context, err error) error {
	if taken := w.txn.CheckMember(ctx); taken != nil {
		return taken
	}
	return err
}

// verify holds the progress record against the cluster as it is now. What does not
// fit no retry can repair.
func (w *folder) verify(ctx context.Context, p *schema.Progress) error {
	cl := w.txn.Client()
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicLikes, schema.TopicState, schema.TopicUpdates)
	if err != nil {
		return err
	}
	if p.ClusterID != topics.ClusterID {
		return stream.Park(stream.CauseTopics, table.ActionRestore, "the state table is of cluster %s, this is cluster %s", p.ClusterID, topics.ClusterID)
	}
	if p.Moving {
		return table.ParkMoving(p)
	}
	for _, t := range []struct {
		name   string
		id     schema.TopicID
		remedy string
	}{{schema.TopicLikes, p.SourceID, table.ActionAcceptLoss}, {schema.TopicState, p.StateID, table.ActionRestore}, {schema.TopicUpdates, p.UpdatesID, table.ActionUpdatesLost}} {
		have := topics.ByName[t.name]
		if t.id != have.ID {
			return stream.Park(stream.CauseTopics, t.remedy, "topic %s was deleted and created again since partition %d was folded", t.name, w.partition)
		}
		if p.Partitions != have.Partitions {
			return table.ParkPartitions(t.name, have.Partitions, p.Partitions)
		}
	}
	start, end, err := kafka.Bounds(ctx, cl, schema.TopicLikes, w.partition)
	if err != nil {
		return err
	}
	other, err := table.FindDisagreement(ctx, cl, topics, w.partition, p)
	switch {
	case err != nil:
		return err
	case other != nil && !other.OffsetOnly:
		return stream.Park(stream.CauseState, other.Remedy, "%s", other.Why)
	case p.NextOffset < start || p.NextOffset > end: // the remedy sets the offset, too
		return stream.Park(stream.CauseLoss, table.ActionAcceptLoss, "offset %d is next, but likes/%d holds %d to %d", p.NextOffset, w.partition, start, end)
	case other != nil:
		return stream.Park(stream.CauseState, other.Remedy, "%s", other.Why)
	}
	return nil
}

// Process is the one way of an event: judge, fold, publish, commit.
func (w *folder) Process(ctx context.Context, b *stream.Batch) error {
	if len(b.Records) == 0 {
		return nil // a tick: an idle partition has no transactions
	}
	x, err := w.txn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("likes/%d up to offset %d: %w", w.partition, b.Next.Offset, err)
	}
	out := &output{progress: w.progress, began: time.Now()}
	err = w.transact(x, b, out)
	tracing.End(out.spans, err)
	if err != nil {
		x.Drop()
		w.metrics.foldFailed(err, out.committing)
		w.store.Abandon() // whether Kafka has it or not is found out by opening again
		return fmt.Errorf("likes/%d up to offset %d: %w", w.partition, b.Next.Offset, err)
	}
	// Only now: the store is a copy of what is committed, on disk never ahead of it.
	if err := w.store.Seal(out.last.Offset); err != nil {
		return err
	}
	w.progress = out.progress
	w.count(len(b.Records), out)
	for _, room := range out.rooms {
		w.rooms.Put(room) // the client has let go of it
	}
	return nil
}

// output is what a batch publishes, a part at a time.
type output struct {
	records []*kgo.Record // of the part: those for the state table first
	state   int           // how many of records are for the state table
	last    *kgo.Record   // for the state table, of the batch: its progress

	rooms []*recordRoom

	// began is when the batch did, folded when all of it was with the client: only the
	// commit was left, which it is committing since.
	began, folded time.Time
	committing    bool

	progress                              schema.Progress
	events, transitions                   int // folded; those that changed a reaction
	updates, forwards, capped, badRegions int
	deadLetters                           []*kgo.Record
	reasons                               []schema.PoisonReason
	spans                                 []trace.Span // of the events that are followed
}

// follow takes in the events of a part that are followed, and returns the last one of each post
// and each pair.
func (out *output) follow(v *classify.Classified) (posts map[uint64]trace.Span, pairs map[fold.PairKey]trace.Span) {
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

// recordRoom is the memory of the records of a part: one piece each for records and bytes,
// not two for every record. It goes round: what is fresh costs more than what is done with it.
type recordRoom struct {
	records []kgo.Record
	bytes   []byte
}

// newRoom returns room for so many records.
func (w *folder) newRoom(records int) *recordRoom {
	room, ok := w.rooms.Get().(*recordRoom)
	if !ok {
		room = &recordRoom{}
	}
	if len(room.records) < records {
		room.records = make([]kgo.Record, records+records/4)
	}
	return room
}

func (out *output) add(v *classify.Classified) {
	out.forwards += len(v.Forwards)
	out.capped += v.Capped
	out.badRegions += v.BadRegions
	out.deadLetters = append(out.deadLetters, v.DeadLetters...)
	out.reasons = append(out.reasons, v.Reasons...)
}

// sheet is where the records of a part of the batch are laid out.
type sheet struct {
	out       *output
	partition int32
	slab      []kgo.Record // that nothing is in yet
	bytes     []byte
}

// cut is what has been appended since there were n bytes.
func (s *sheet) cut(n int) []byte { return s.bytes[n:len(s.bytes):len(s.bytes)] }

func (s *sheet) add(topic string, key, value []byte) *kgo.Record {
	if len(s.slab) == 0 {
		s.slab = make([]kgo.Record, 64)
	}
	rec := &s.slab[0]
	s.slab = s.slab[1:]
	*rec = kgo.Record{Topic: topic, Partition: s.partition, Key: key, Value: value}
	s.out.records = append(s.out.records, rec)
	return rec
}

// publish lays out the records of a part of the batch; after the last one comes the
// progress.
func (w *folder) publish(out *output, v *classify.Classified, r *fold.Result, next kafka.Position, last bool) {
	out.records = make([]*kgo.Record, 0, len(r.Pairs)+len(r.Counts)+len(r.Updates)+len(v.Forwards)+len(v.DeadLetters)+2)
	out.events += len(v.Events)
	out.transitions += r.Transitions
	room := w.newRoom(cap(out.records))
	out.rooms = append(out.rooms, room)
	s := &sheet{out: out, partition: w.partition, slab: room.records, bytes: room.bytes[:0]}
	defer func() { room.bytes = s.bytes }()
	posts, pairs := out.follow(v)
	s.layState(r, pairs)
	if last {
		out.last = s.add(schema.TopicState, []byte(schema.StateProgressKey), nil) // value below
	}
	out.state = len(out.records)
	s.layUpdates(r, w.layout, next, posts)
	if last {
		s.update(next, []byte(schema.ProgressKey), schema.ProgressUpdate(out.progress.Layouts, false))
		out.progress.NextOffset, out.progress.LeaderEpoch = next.Offset, next.Epoch
		out.last.Value = schema.AppendProgress(nil, &out.progress)
	}
	out.records = append(out.records, v.Forwards...)
	out.records = append(out.records, v.DeadLetters...)
}

// layState lays out the pairs and counts that have changed.
func (s *sheet) layState(r *fold.Result, pairs map[fold.PairKey]trace.Span) {
	for i := range r.Pairs {
		p := &r.Pairs[i]
		n := len(s.bytes)
		s.bytes = schema.AppendPairKey(s.bytes, p.Key.PostID, p.Key.UserID)
		key := s.cut(n)
		n = len(s.bytes)
		s.bytes = schema.AppendPair(s.bytes, &p.Pair)
		rec := s.add(schema.TopicState, key, s.cut(n))
		if span, ok := pairs[p.Key]; ok {
			tracing.GiveTo(rec, span.SpanContext())
		}
	}
	for _, c := range r.Counts {
		n := len(s.bytes)
		s.bytes = schema.AppendCountsKey(s.bytes, c.PostID)
		key := s.cut(n)
		n = len(s.bytes)
		s.bytes = schema.AppendCounts(s.bytes, c.Counts)
		s.add(schema.TopicState, key, s.cut(n))
	}
}

// layUpdates lays out what the posts' changes come to.
func (s *sheet) layUpdates(r *fold.Result, layout schema.Layout, next kafka.Position, posts map[uint64]trace.Span) {
	for i := range r.Updates {
		u := &r.Updates[i]
		n := len(s.bytes)
		s.bytes = schema.AppendPostKey(s.bytes, u.PostID)
		key := s.cut(n)
		for deltas := u.Deltas; len(deltas) > 0; {
			n := min(len(deltas), schema.MaxDeltas)
			rec := s.update(next, key, schema.Update{Counts: u.Counts, Deltas: deltas[:n], Buckets: layout.Buckets(u.PostID)})
			if span, ok := posts[u.PostID]; ok {
				tracing.GiveTo(rec, span.SpanContext())
			}
			deltas = deltas[n:]
		}
	}
}

// update adds an update with the next number.
func (s *sheet) update(next kafka.Position, key []byte, u schema.Update) *kgo.Record {
	u.Seq, u.SourceOffset = s.out.progress.NextSeq, next.Offset
	s.out.progress.NextSeq++
	s.out.updates++
	n := len(s.bytes)
	s.bytes = schema.AppendUpdate(s.bytes, &u)
	return s.add(schema.TopicUpdates, key, s.cut(n))
}

func (w *folder) count(records int, out *output) {
	m := w.metrics
	m.events.Add(float64(records))
	m.forwarded.Add(float64(out.forwards))
	m.transitions.Add(float64(out.transitions))
	m.duplicates.Add(float64(out.events - out.transitions))
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
	if n := len(out.deadLetters); n > 0 { // one line a batch: a flood of poison is not to slow the partition
		first := out.deadLetters[0]
		w.log.Warn("dead letters", "topic", schema.TopicLikes, "partition", w.partition, "count", n,
			"first_offset", classify.Header(first, schema.HeaderDLTOffset), "first_error", classify.Header(first, schema.HeaderDLTError))
	}
}

// Close closes the transactional client; an open transaction is left to the next
// Fence.
func (w *folder) Close() {
	if w.txn != nil {
		w.txn.Close()
	}
}
