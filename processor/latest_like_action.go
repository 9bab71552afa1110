package processor

import (
	"context"
	"fmt"
	"time"

	"kudos/processor/fold"
	"kudos/processor/fold/classify"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/kafka/tracing"
	"kudos/stream/store"
)

// foldWorker is the worker of latest-like-action for one partition.
type foldWorker struct {
	*Workers
	*kafka.Txn
	partition int32
	store     *store.Store

	progress   schema.Progress
	layout     schema.Layout          // of progress
	classified [2]classify.Classified // of the chunk that is folded and of the next one
	fold       fold.Folder
}

// Open brings the state table up to the end of its changelog, which only this worker can extend now, and takes the
// position from the progress record in it.
func (w *foldWorker) Open(ctx context.Context) (kafka.Position, error) {
	if _, err := w.store.CatchUp(ctx, w.Client(), store.Hooks{}); err != nil {
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
		return kafka.Position{}, w.ifStillOwned(ctx, err)
	}
	w.progress, w.layout = progress, progress.Layout()
	return kafka.Position{Offset: progress.NextOffset, Epoch: progress.LeaderEpoch}, nil
}

// ifStillOwned returns err if this process still owns the partition. If another process took it since Fence
// (ErrFenced), or that is unknown, it returns that error instead: the new owner may have changed what was read, so err
// may be wrong.
func (w *foldWorker) ifStillOwned(ctx context.Context, err error) error {
	if taken := w.CheckMember(ctx); taken != nil {
		return taken
	}
	return err
}

// verify compares the progress record with the cluster. A retry cannot fix a mismatch.
func (w *foldWorker) verify(ctx context.Context, p *schema.Progress) error {
	cl := w.Client()
	topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicLikes, schema.TopicState, schema.TopicUpdates)
	if err != nil {
		return err
	}
	if p.ClusterID != topics.ClusterID {
		return stream.Park(stream.CauseTopics, table.ActionRestore,
			"the state table is of cluster %s, this is cluster %s", p.ClusterID, topics.ClusterID)
	}
	if p.Moving {
		return table.ParkMoving(p)
	}
	for _, t := range []struct {
		name   string
		id     schema.TopicID
		remedy string
	}{
		{schema.TopicLikes, p.SourceID, table.ActionAcceptLoss},
		{schema.TopicState, p.StateID, table.ActionRestore},
		{schema.TopicUpdates, p.UpdatesID, table.ActionUpdatesLost},
	} {
		have := topics.ByName[t.name]
		if t.id != have.ID {
			return stream.Park(stream.CauseTopics, t.remedy,
				"topic %s was deleted and created again since partition %d was folded", t.name, w.partition)
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
	case p.NextOffset < start || p.NextOffset > end: // this action sets the offset, too
		return stream.Park(stream.CauseLoss, table.ActionAcceptLoss,
			"offset %d is next, but likes/%d holds %d to %d", p.NextOffset, w.partition, start, end)
	case other != nil:
		return stream.Park(stream.CauseState, other.Remedy, "%s", other.Why)
	}
	return nil
}

// Process is the only path of an event: classify, fold, publish, commit.
func (w *foldWorker) Process(ctx context.Context, b *stream.Batch) error {
	if len(b.Records) == 0 {
		return nil // a tick: an idle partition has no transactions
	}
	x, err := w.Begin(ctx)
	if err != nil {
		return fmt.Errorf("likes/%d up to offset %d: %w", w.partition, b.Next.Offset, err)
	}
	out := &output{
		partition: w.partition, progress: w.progress, next: b.Next, began: time.Now(), store: w.store.NewWrite(),
	}
	err = w.transact(x, b, out)
	tracing.End(out.spans, err)
	if err != nil {
		x.Drop()
		w.metrics.foldFailed(err, out.committing)
		out.store.Discard() // reopening finds out whether Kafka has it
		return fmt.Errorf("likes/%d up to offset %d: %w", w.partition, b.Next.Offset, err)
	}
	// Only now: on disk, the store is never ahead of the committed log.
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

func (w *foldWorker) count(records int, out *output) {
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
	if n := len(out.deadLetters); n > 0 { // one line per batch: a burst of invalid events must not slow the partition
		first := out.deadLetters[0]
		w.log.Warn("dead letters", "topic", schema.TopicLikes, "partition", w.partition, "count", n,
			"first_offset", classify.Header(first, schema.HeaderDLTOffset),
			"first_error", classify.Header(first, schema.HeaderDLTError))
	}
}

// Leave closes the local state store.
func (w *foldWorker) Leave() { store.Leave(w.store) }
