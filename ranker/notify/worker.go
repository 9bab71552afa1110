package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

const (
	actionLoss = "stop the notifiers and move their groups to the offsets that exist, with kafka-consumer-groups.sh " +
		"--reset-offsets"
	actionUpgrade = "run the version of kudos that wrote it, or a later one"
)

// worker sends the events of one partition. It is a stream.Worker.
type worker struct {
	*Notify
	of    stream.Assignment
	group string
	cl    *kgo.Client

	next    int64     // after what was sent since the partition was assigned; -1: not known
	failing time.Time // since when the event at next has failed; zero: it has not
}

// Fence does nothing: if another process has sent an event, too, it was sent more than once.
func (w *worker) Fence(context.Context) error { return nil }

// Open resumes after what was sent, or else at the committed position, or else at the end.
func (w *worker) Open(ctx context.Context) (at kafka.Position, err error) {
	w.Close()
	if w.cl, err = w.kafka.NewClient(w.log, kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		w.cl = nil
		return at, err
	}
	start, end, err := kafka.Bounds(ctx, w.cl, w.of.Topic, w.of.Partition)
	if err != nil {
		return at, err
	}
	at, found, err := kafka.Committed(ctx, w.cl, w.group, w.of.Topic, w.of.Partition)
	switch {
	case err != nil:
		return at, err
	case w.next >= 0:
		at = kafka.Position{Offset: w.next, Epoch: -1}
	case !found:
		at = kafka.Position{Offset: end, Epoch: -1}
		w.next = end // it is committed soon; until then, what comes must not move it
	}
	if at.Offset < start || at.Offset > end {
		return at, stream.Park(stream.CauseLoss, actionLoss, "offset %d is next, but %s/%d holds %d to %d",
			at.Offset, w.of.Topic, w.of.Partition, start, end)
	}
	return at, nil
}

// Process sends the events of a batch. After an error it resumes with the event that failed.
func (w *worker) Process(ctx context.Context, b *stream.Batch) error {
	latest := map[string]int64{} // the offset of the last record with a key
	for _, rec := range b.Records {
		latest[string(rec.Key)] = rec.Offset
	}
	for _, rec := range b.Records {
		e, err := w.eventOf(rec)
		if err != nil {
			return stream.Park(stream.CauseRecord, actionUpgrade, "%s/%d offset %d: %w", w.of.Topic, w.of.Partition,
				rec.Offset, err)
		}
		replaced := rec.Topic == schema.TopicTrending && latest[string(rec.Key)] != rec.Offset
		if e != nil && !replaced {
			if err := w.deliver(ctx, rec, e); err != nil {
				return err
			}
		}
		w.next, w.failing = rec.Offset+1, time.Time{}
	}
	return nil
}

// deliver sends an event once. If that fails, and has failed for long enough, the event becomes a dead letter.
func (w *worker) deliver(ctx context.Context, rec *kgo.Record, e *event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if err = w.post(ctx, e.ID, body); err == nil {
		w.sent.WithLabelValues(e.Type).Inc()
		return nil
	}
	w.failed.Inc()
	if w.failing.IsZero() {
		w.failing = time.Now()
	}
	if time.Since(w.failing) < w.opts.GiveUpAfter {
		return fmt.Errorf("sending %s: %w", e.ID, err)
	}
	if err := w.deadLetter(ctx, rec, e, body, err); err != nil {
		return fmt.Errorf("writing %s to %s: %w", e.ID, schema.TopicNotifyDLT, err)
	}
	w.log.Error("gave up sending an event: it is in "+schema.TopicNotifyDLT, "id", e.ID, "error", err)
	w.deadLetters.WithLabelValues(e.Type).Inc()
	return nil
}

func (w *worker) deadLetter(ctx context.Context, rec *kgo.Record, e *event, body []byte, why error) error {
	topics, err := kafka.LookUpTopics(ctx, w.cl, schema.TopicNotifyDLT)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.kafka.RequestTimeout)
	defer cancel()
	return w.cl.ProduceSync(ctx, &kgo.Record{
		Topic: schema.TopicNotifyDLT, Partition: w.of.Partition % topics.ByName[schema.TopicNotifyDLT].Partitions,
		Key: []byte(e.ID), Value: body,
		Headers: []kgo.RecordHeader{
			{Key: schema.HeaderDLTError, Value: []byte(why.Error())},
			{Key: schema.HeaderDLTTopic, Value: []byte(rec.Topic)},
			{Key: schema.HeaderDLTPartition, Value: strconv.AppendInt(nil, int64(rec.Partition), 10)},
			{Key: schema.HeaderDLTOffset, Value: strconv.AppendInt(nil, rec.Offset, 10)},
		},
	}).FirstErr()
}

// Close closes the worker's connections to Kafka.
func (w *worker) Close() {
	if w.cl != nil {
		w.cl.Close()
		w.cl = nil
	}
}
