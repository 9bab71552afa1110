package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold/classify"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// worker publishes one partition of the source. It is a stream.Worker.
type worker struct {
	*Bridge
	*kafka.Txn
	partition int32

	clock    clock
	layout   schema.Layout
	dltParts int32
	looked   time.Time // when the layout was last compared
}

// clock is the latest event time that was published, and the layout by which events were sent. It is the metadata of
// the committed offset. If the layout changes, the clock moves on: the fold forwards what was sent to former
// partitions, so that an event there may arrive after a later one, whose time must be greater then, not equal.
type clock struct {
	TimeMs     int64              `json:"time_ms"`
	Partitions int32              `json:"partitions"`
	Buckets    schema.UserBuckets `json:"user_buckets,omitempty"`
}

const layoutInterval = 10 * time.Second // between checks whether likes has got more partitions

func (b *Bridge) newWorker(a stream.Assignment) stream.Worker {
	return &worker{Bridge: b, partition: a.Partition, Txn: kafka.NewTxn(kafka.TxnOptions{
		IDs:    []string{schema.TransactionalID(b.opts.Group, a.Partition)},
		Member: a.Member, Group: b.opts.Group,
		Source: kafka.LogPartition{Topic: b.opts.Topic, Partition: a.Partition},
		Kafka:  b.kafka, Timeout: b.opts.TransactionTimeout, BatchMaxBytes: schema.BatchMaxBytes,
	}, b.log)}
}

// Open resumes at the committed position, or begins at the start of the source.
func (w *worker) Open(ctx context.Context) (at kafka.Position, err error) {
	cl := w.Client()
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicLikes, schema.TopicDLT)
	if err != nil {
		return at, err
	}
	w.Outputs(topics)
	w.dltParts, w.looked = topics.ByName[schema.TopicDLT].Partitions, time.Now()
	if w.layout, err = schema.NewLayout(topics.ByName[schema.TopicLikes].Partitions, w.opts.UserBuckets); err != nil {
		return at, err
	}
	at, found, err := kafka.Committed(ctx, cl, w.opts.Group, w.opts.Topic, w.partition)
	if err != nil {
		return at, err
	}
	start, end, err := kafka.Bounds(ctx, cl, w.opts.Topic, w.partition)
	switch {
	case err != nil:
		return at, err
	case !found:
		w.clock = clock{}
		at = kafka.Position{Offset: start, Epoch: -1}
	case at.Offset < start || at.Offset > end:
		return at, stream.Park(stream.CauseLoss, actionLoss, "offset %d is next, but %s/%d holds %d to %d",
			at.Offset, w.opts.Topic, w.partition, start, end)
	default:
		if w.clock, err = parseClock(at.Metadata); err != nil {
			return at, err
		}
	}
	if is := (clock{w.clock.TimeMs, w.layout.Partitions, w.opts.UserBuckets}); is != w.clock {
		w.clock = is
		w.clock.TimeMs++
	}
	return at, nil
}

// parseClock parses the metadata of an offset. A tool that moves the offset leaves none: then the clock starts again.
func parseClock(metadata string) (c clock, err error) {
	if metadata == "" {
		return c, nil
	}
	if err := json.Unmarshal([]byte(metadata), &c); err != nil {
		return c, stream.Park(stream.CauseState, "run the version of kudos that wrote it, or a later one",
			"the metadata of the committed offset is not understood: %w", err)
	}
	return c, nil
}

// Process publishes a batch.
func (w *worker) Process(ctx context.Context, b *stream.Batch) error {
	if err := w.sameLayout(ctx); err != nil {
		return err
	}
	now, out := w.clock, make([]*kgo.Record, 0, len(b.Records))
	var skipped int
	reasons := map[schema.PoisonReason]int{}
	for _, rec := range b.Records {
		record, err := w.publish(ctx, rec, &now.TimeMs)
		var poison *schema.PoisonError
		switch {
		case errors.As(err, &poison):
			record = classify.DeadLetter(rec, w.partition%w.dltParts, poison)
			reasons[poison.Reason]++
		case err != nil:
			return err
		case record == nil:
			skipped++
			continue
		}
		out = append(out, record)
	}
	if len(out) > 0 { // otherwise the position waits for the next transaction
		next := b.Next
		metadata, err := json.Marshal(now)
		if err != nil {
			return err
		}
		next.Metadata = string(metadata)
		if err := w.Commit(ctx, out, next); err != nil {
			return fmt.Errorf("%s/%d up to offset %d: %w", w.opts.Topic, w.partition, next.Offset, err)
		}
		w.clock = now
	}
	w.measure(len(out), skipped, reasons)
	return nil
}

// publish returns the record of likes that a source record becomes, or nil if it changes nothing.
func (w *worker) publish(ctx context.Context, rec *kgo.Record, clockMs *int64) (*kgo.Record, error) {
	c, err := w.decode(ctx, rec)
	if c == nil || err != nil {
		return nil, err
	}
	e, err := w.mapping.event(c, rec, clockMs)
	if err != nil {
		var park *stream.ParkError
		if errors.As(err, &park) {
			park.Reason = fmt.Sprintf("%s/%d offset %d: %s", w.opts.Topic, w.partition, rec.Offset, park.Reason)
		}
		return nil, err
	}
	return &kgo.Record{
		Topic:     schema.TopicLikes,
		Partition: w.layout.PartitionOf(e.PostID, e.UserID),
		Key:       w.layout.AppendKey(nil, e.PostID, e.UserID),
		Value:     schema.AppendEvent(nil, &e),
	}, nil
}

// sameLayout reopens the partition once likes has got more partitions. While Kafka does not answer, it asks again.
func (w *worker) sameLayout(ctx context.Context) error {
	if time.Since(w.looked) < layoutInterval {
		return nil
	}
	topics, err := kafka.LookUpTopics(ctx, w.Client(), schema.TopicLikes)
	if n := topics.ByName[schema.TopicLikes].Partitions; err == nil && n != w.layout.Partitions {
		return stream.Reopen(fmt.Sprintf("likes has %d partitions now", n))
	}
	w.looked = time.Now()
	return nil
}

func (w *worker) measure(published, skipped int, reasons map[schema.PoisonReason]int) {
	w.skipped.Add(float64(skipped))
	for reason, n := range reasons {
		w.deadLetters.WithLabelValues(string(reason)).Add(float64(n))
		published -= n
		w.log.Warn("source records were written to likes.dlt", "topic", w.opts.Topic, "partition", w.partition,
			"reason", reason, "records", n)
	}
	w.events.Add(float64(published))
}
