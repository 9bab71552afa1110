package topics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// firstProgress gives a partition its first progress record, which says that all of
// its likes are to be folded from their present start on.
type firstProgress struct {
	kafka     kafka.Options
	log       *slog.Logger
	topics    kafka.Topics
	layout    schema.Layout
	partition int32
	// layouts were before this one; moving: reactions are on their way to it.
	layouts uint32
	moving  bool
}

// AddFirstProgress gives a partition that was added its first progress record, by which nothing is folded until
// reactions have moved to their layout. It does nothing if there is one.
func AddFirstProgress(ctx context.Context, kafka kafka.Options, topics kafka.Topics, partition int32, layout schema.Layout, layouts uint32, log *slog.Logger) error {
	first := firstProgress{kafka: kafka, log: log, topics: topics, partition: partition, layout: layout, layouts: layouts, moving: true}
	return first.write(ctx, &Report{})
}

const (
	fencedTries = 10
	fencedPause = 100 * time.Millisecond
)

// write does nothing if the state table has anything for the partition. A processor
// that looks at the parked partition at the same time takes the transactional id away,
// and finds nothing: then it is tried again.
func (f *firstProgress) write(ctx context.Context, report *Report) error {
	for try := 1; ; try++ {
		start, written, err := f.writeOnce(ctx)
		switch {
		case err == nil:
			if written {
				report.add("partition %d starts at offset %d of %s", f.partition, start, schema.TopicLikes)
			}
			return nil
		case try == fencedTries || !fencedAway(err):
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Duration(try) * fencedPause):
		}
	}
}

func fencedAway(err error) bool {
	return errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.ProducerFenced) ||
		errors.Is(err, kerr.InvalidTxnState) || errors.Is(err, kerr.ConcurrentTransactions)
}

// writeOnce works under the partition's transactional id: that fences a processor
// which would write at the same time, and whoever else is here.
func (f *firstProgress) writeOnce(ctx context.Context) (start int64, written bool, err error) {
	cl, err := f.kafka.NewClient(f.log,
		kgo.TransactionalID(schema.FoldTransactionalID(f.partition)),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(f.kafka.RequestTimeout))
	if err != nil {
		return 0, false, err
	}
	defer cl.Close()
	// Looked at twice: a running processor is fenced only if there may be need.
	if empty, err := f.isEmpty(ctx, schema.TopicState); err != nil || !empty {
		return 0, false, err
	}
	if _, _, err := cl.ProducerID(ctx); err != nil {
		return 0, false, fmt.Errorf("initialising transactional id of partition %d: %w", f.partition, err)
	}
	if empty, err := f.isEmpty(ctx, schema.TopicState); err != nil || !empty {
		return 0, false, err
	}
	if empty, err := f.isEmpty(ctx, schema.TopicUpdates); err != nil {
		return 0, false, err
	} else if !empty {
		return 0, false, fmt.Errorf("%s/%d has records but %s/%d has none: the state table was lost; `kudos rebuild --from-events` makes it anew if %s still has its start; to fold again only what %s still holds: %s", schema.TopicUpdates, f.partition, schema.TopicState, f.partition, schema.TopicLikes, schema.TopicLikes, table.ActionStartOver)
	}
	if start, _, err = kafka.Bounds(ctx, cl, schema.TopicLikes, f.partition); err != nil {
		return 0, false, err
	}
	if err := f.commit(ctx, cl, start); err != nil {
		return 0, false, fmt.Errorf("writing the first progress record of partition %d: %w", f.partition, err)
	}
	return start, true, nil
}

// commit writes the record, and has the group's committed offset agree with it: one
// that is left from earlier folding would look like a state table that went back.
func (f *firstProgress) commit(ctx context.Context, cl *kgo.Client, start int64) error {
	likes := f.topics.ByName[schema.TopicLikes]
	progress := schema.Progress{
		NextOffset: start, LeaderEpoch: -1, ClusterID: f.topics.ClusterID, Partitions: f.layout.Partitions, UserBuckets: f.layout.UserBuckets(), Layouts: f.layouts, Moving: f.moving,
		SourceID: likes.ID, StateID: f.topics.ByName[schema.TopicState].ID, UpdatesID: f.topics.ByName[schema.TopicUpdates].ID,
	}
	committed, ok, err := kafka.CommittedOffset(ctx, cl, schema.GroupFold, schema.TopicLikes, f.partition)
	if err != nil {
		return err
	}
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	rec := &kgo.Record{Topic: schema.TopicState, Partition: f.partition, Key: []byte(schema.StateProgressKey), Value: schema.AppendProgress(nil, &progress)}
	if err := cl.ProduceSync(ctx, rec).FirstErr(); err != nil {
		return err
	}
	if ok && committed != start {
		// Kafka allows it to nobody's member, even while the group has members.
		source := kafka.LogPartition{Topic: schema.TopicLikes, TopicID: likes.ID, Partition: f.partition}
		err := kafka.AddOffset(ctx, cl, schema.FoldTransactionalID(f.partition), kafka.NoMember(schema.GroupFold), source, kafka.Position{Offset: start, Epoch: -1})
		if err != nil {
			return fmt.Errorf("committing the offset of group %s: %w", schema.GroupFold, err)
		}
	}
	return kafka.CommitTransaction(ctx, cl, rec.Topic, rec.Partition)
}

// isEmpty tells whether a partition has no committed record. Its end does not tell:
// aborted records and control records take offsets, too.
func (f *firstProgress) isEmpty(ctx context.Context, topic string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, f.kafka.RequestTimeout)
	defer cancel()
	cl, err := f.kafka.NewClient(f.log,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {f.partition: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords()) // they show how far has been read
	if err != nil {
		return false, err
	}
	defer cl.Close()
	next, end, err := kafka.Bounds(ctx, cl, topic, f.partition)
	if err != nil {
		return false, err
	}
	for next < end {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return false, fmt.Errorf("looking for records in %s/%d: %w", topic, f.partition, err)
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			rec := iter.Next()
			if !rec.Attrs.IsControl() {
				return false, nil
			}
			next = rec.Offset + 1
		}
	}
	return true, nil
}
