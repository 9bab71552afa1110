package processor

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// like-counts has the records of the state table but the reactions: a reader has the counts after it has read one
// record a post. Each transaction writes to both. Counts are missing if the topic is new, or an older build had the
// partition, which does not write it. Then each transaction adds some of them, and the progress record has no value
// until all are there.

// logPart is a part of the log of a topic's partition.
type logPart struct {
	topic     string
	next, end int64
}

// openCounts finds out whether like-counts is complete.
func (w *foldWorker) openCounts(ctx context.Context, p *schema.Progress) error {
	w.uncounted = nil
	if all, err := table.HasAllCounts(ctx, w.Client(), w.partition, p); err != nil || all {
		return err
	}
	// Posts that are not in the state table any more are in like-counts only.
	for _, topic := range []string{schema.TopicCounts, schema.TopicState} {
		start, end, err := kafka.Bounds(ctx, w.Client(), topic, w.partition)
		if err != nil {
			return err
		}
		w.uncounted = append(w.uncounted, logPart{topic, start, end})
	}
	w.log.Info("completing a topic", "topic", schema.TopicCounts, "partition", w.partition)
	return nil
}

const missingPosts = 2000 // how many a transaction adds, or a few more

// missingCounts reads on in the logs that have all posts, and returns records with the current counts of these posts.
func (w *foldWorker) missingCounts(ctx context.Context) (records []*kgo.Record, err error) {
	var posts []uint64
	for len(w.uncounted) > 0 && len(posts) < min(missingPosts, w.FoldChunk) {
		part := &w.uncounted[0]
		if part.next >= part.end {
			w.uncounted = w.uncounted[1:]
			continue
		}
		read := func(c kafka.LogChunk) (bool, error) {
			for _, rec := range c.Records {
				if post, ok := schema.ParseCountsKey(rec.Key); ok {
					posts = append(posts, post)
				}
			}
			part.next = c.Next
			return false, nil
		}
		if err := kafka.ReadLogSmall(ctx, w.Client(), part.topic, w.partition, part.next, read); err != nil {
			return nil, err
		}
	}
	if len(posts) == 0 {
		return nil, nil
	}
	slices.Sort(posts)
	posts = slices.Compact(posts)
	for _, post := range posts { // without a value: the post has no counts
		key := schema.AppendCountsKey(nil, post)
		records = append(records, &kgo.Record{Topic: schema.TopicCounts, Partition: w.partition, Key: key})
	}
	state := table.State{Store: w.store}
	return records, state.Counts(posts, func(i int, c schema.Counts) { records[i].Value = schema.AppendCounts(nil, c) })
}

const completeFor = 100 * time.Millisecond // how long a tick completes like-counts

// idle handles a tick. An idle partition has no transactions, unless like-counts is incomplete.
func (w *foldWorker) idle(ctx context.Context, b *stream.Batch) error {
	for began := time.Now(); len(w.uncounted) > 0 && time.Since(began) < completeFor; {
		if err := w.commitBatch(ctx, b); err != nil {
			return err
		}
	}
	return nil
}
