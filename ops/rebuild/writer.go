package rebuild

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/audit"
	"kudos/ops/await"
	"kudos/ops/progress"
	"kudos/schema"
	"kudos/stream/kafka"
)

// writer rewrites one partition in one transaction: all of it becomes visible at commit, or nothing. It uses the
// partition's transactional id, so it fences a processor that is still writing, and a processor that starts fences it.
//
// Unlike kafka.Txn it streams records, because a partition does not fit in memory.
type writer struct {
	b         *rebuild
	cl        *kgo.Client // closing it aborts what was not committed
	partition int32
	progress  schema.Progress // written at the end of the transaction

	updates, state int64 // numbers of records written
	cells          audit.Cells

	last   map[string]*kgo.Record // by topic
	failed atomic.Pointer[error]  // error of the first record that failed
}

// begin fences a partition. This comes before anything of it is read, so that nothing else writes there from then on.
func (b *rebuild) begin(ctx context.Context, partition int32) (*writer, error) {
	ids, timeout := schema.FoldTransactionalIDs(partition), b.opts.TransactionTimeout
	cl, err := b.kafka.NewFencingClient(ctx, b.log, ids, kgo.TransactionTimeout(timeout),
		kgo.RecordDeliveryTimeout(b.kafka.RequestTimeout), kgo.ProducerLinger(5*time.Millisecond))
	if err == nil {
		if err = cl.BeginTransaction(); err != nil {
			cl.Close()
		}
	}
	switch {
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return nil, fmt.Errorf("the brokers' transaction.max.timeout.ms is below %s; "+
			"use a shorter --transaction-timeout, in which a partition can be written: %w", timeout, err)
	case err != nil:
		return nil, err
	}
	return &writer{b: b, cl: cl, partition: partition, cells: audit.Cells{}, last: map[string]*kgo.Record{}}, nil
}

// add produces a record of the partition; it blocks while too many are in flight.
func (w *writer) add(ctx context.Context, topic string, key, value []byte) error {
	rec := &kgo.Record{Topic: topic, Partition: w.partition, Key: key, Value: value}
	w.last[topic] = rec
	w.cl.Produce(ctx, rec, func(_ *kgo.Record, err error) {
		if err != nil {
			first := err // a copy: with the address of err, each call would allocate
			w.failed.CompareAndSwap(nil, &first)
		}
	})
	return w.failure()
}

func (w *writer) failure() error {
	err := w.failed.Load()
	switch {
	case err == nil:
		return nil
	case errors.Is(*err, kerr.ProducerFenced), errors.Is(*err, kerr.InvalidProducerEpoch):
		return fmt.Errorf("rewriting partition %d: a processor was started and has taken the partition over, "+
			"nothing was changed; stop it and run this again: %w", w.partition, *err)
	}
	return fmt.Errorf("rewriting partition %d: %w", w.partition, *err)
}

// publish writes the updates that lead to the table, from sequence number 0, and the matching progress record, and
// commits. It also corrects a post's stored counts that are not the sum of its pairs.
func (w *writer) publish(ctx context.Context, table *audit.Table) error {
	phase := w.b.phase("writing the updates", w.partition, "updates", 0)
	defer phase.End()
	w.progress.NextSeq = 0
	repaired := 0
	err := table.EachPost(
		func(_ uint64, p *schema.Pair) error {
			w.cells.Add(p)
			return nil
		},
		func(post audit.Post) error {
			if post.Stored != post.Counted {
				repaired++
				w.state++
				key, value := schema.AppendCountsKey(nil, post.ID), schema.AppendCounts(nil, post.Counted)
				if err := w.add(ctx, schema.TopicState, key, value); err != nil {
					return err
				}
			}
			return w.post(ctx, post, phase)
		})
	if err != nil {
		return err
	}
	if err := w.update(ctx, []byte(schema.ProgressKey), schema.ProgressUpdate(w.progress.Layouts, false)); err != nil {
		return err
	}
	if err := w.finish(ctx); err != nil {
		return err
	}
	if repaired > 0 {
		return w.b.say("partition %d: the state table's counts of %d posts differed from their reactions; corrected",
			w.partition, repaired)
	}
	return nil
}

// post writes the updates of one post, whose deltas add up to its counts.
func (w *writer) post(ctx context.Context, post audit.Post, phase *progress.Phase) error {
	all := schema.Update{Counts: post.Counted, Deltas: w.cells.Deltas(1), Buckets: w.b.layout.Buckets(post.ID)}
	clear(w.cells)
	key := schema.AppendPostKey(nil, post.ID)
	for u := range all.Split() {
		if err := w.update(ctx, key, u); err != nil {
			return err
		}
		phase.Add(1)
	}
	return nil
}

func (w *writer) update(ctx context.Context, key []byte, u schema.Update) error {
	u.Seq, u.SourceOffset = w.progress.NextSeq, w.progress.NextOffset
	w.progress.NextSeq++
	w.updates++
	return w.add(ctx, schema.TopicUpdates, key, schema.AppendUpdate(nil, &u))
}

// finish links the table to the current like-updates and commits.
func (w *writer) finish(ctx context.Context) error {
	w.progress.UpdatesID = w.b.topics.ByName[schema.TopicUpdates].ID
	return w.commit(ctx)
}

// commit ends the transaction as the fold does, with the progress record and the group's offset.
func (w *writer) commit(ctx context.Context) error {
	w.state++
	key, value := []byte(schema.StateProgressKey), schema.AppendProgress(nil, &w.progress)
	if err := w.add(ctx, schema.TopicState, key, value); err != nil {
		return err
	}
	if err := w.cl.Flush(ctx); err != nil {
		return fmt.Errorf("rewriting partition %d: %w", w.partition, err)
	}
	if err := w.failure(); err != nil {
		return err
	}
	topicID := w.b.topics.ByName[schema.TopicLikes].ID
	likes := kafka.LogPartition{Topic: schema.TopicLikes, TopicID: topicID, Partition: w.partition}
	id := schema.FoldTransactionalIDs(w.partition)[0]
	next := kafka.Position{Offset: w.progress.NextOffset, Epoch: w.progress.LeaderEpoch}
	if err := kafka.AddOffset(ctx, w.cl, id, schema.GroupFold, likes, next); err != nil {
		return fmt.Errorf("committing the offset of partition %d: %w", w.partition, err)
	}
	if err := kafka.CommitTransaction(ctx, w.cl, schema.TopicState, w.partition); err != nil {
		return fmt.Errorf("committing partition %d: the outcome is unknown; "+
			"run this again to resolve it: %w", w.partition, err)
	}
	if err := await.Visible(ctx, w.cl, slices.Collect(maps.Values(w.last))...); err != nil {
		return err
	}
	w.b.result.Updates += w.updates
	w.b.result.State += w.state
	return w.b.say("partition %d: %d updates and %d state records written", w.partition, w.updates, w.state)
}
