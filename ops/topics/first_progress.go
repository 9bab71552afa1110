package topics

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// firstProgress writes the first progress record of a partition, so that folding starts at the current start of likes.
type firstProgress struct {
	kafka     kafka.Options
	log       *slog.Logger
	cl        *kgo.Client
	topics    kafka.Topics
	partition int32
	common    schema.Progress // what the records of all partitions have in common, such as the layout
}

// AddFirstProgress writes the first progress record of an added partition. common has Migrating set: nothing is folded
// until reactions have migrated to its layout. It does nothing if a record exists.
func AddFirstProgress(ctx context.Context, cluster kafka.Options, cl *kgo.Client, topics kafka.Topics, partition int32,
	common schema.Progress, log *slog.Logger,
) error {
	first := firstProgress{cluster, log, cl, topics, partition, common}
	return first.write(ctx, &Report{})
}

// write does nothing if the partition has any record in the state table.
func (f *firstProgress) write(ctx context.Context, report *Report) error {
	return kafka.RetryTakenOver(ctx, func() error { return f.writeOnce(ctx, report) })
}

func (f *firstProgress) writeOnce(ctx context.Context, report *Report) error {
	// Check before and after fencing: don't fence a running processor without need.
	if empty, err := f.isEmpty(ctx, schema.TopicState); err != nil || !empty {
		return err
	}
	cl, err := f.fence(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	if empty, err := f.isEmpty(ctx, schema.TopicState); err != nil || !empty {
		return err
	}
	if empty, err := f.isEmpty(ctx, schema.TopicUpdates); err != nil {
		return err
	} else if !empty {
		return fmt.Errorf("%s/%d has records but %s/%d has none: the state table was lost; "+
			"`kudos rebuild --from-events` rebuilds it if %s still has all events; "+
			"to start over with what %s still has: %s", schema.TopicUpdates, f.partition, schema.TopicState,
			f.partition, schema.TopicLikes, schema.TopicLikes, table.ActionStartOver)
	}
	start, _, err := kafka.Bounds(ctx, cl, schema.TopicLikes, f.partition)
	if err != nil {
		return err
	}
	if err := f.commit(ctx, cl, start); err != nil {
		return fmt.Errorf("writing the first progress record of partition %d: %w", f.partition, err)
	}
	report.add("partition %d starts at offset %d of %s", f.partition, start, schema.TopicLikes)
	return nil
}

func (f *firstProgress) isEmpty(ctx context.Context, topic string) (bool, error) {
	return table.IsEmpty(ctx, f.cl, topic, f.partition)
}

// commit also sets the group's committed offset to match: with one left over, the state table would look rewound.
func (f *firstProgress) commit(ctx context.Context, cl *kgo.Client, start int64) error {
	likes := f.topics.ByName[schema.TopicLikes]
	progress := f.common
	progress.NextOffset, progress.LeaderEpoch, progress.ClusterID = start, -1, f.topics.ClusterID
	progress.SourceID, progress.StateID = likes.ID, f.topics.ByName[schema.TopicState].ID
	progress.UpdatesID = f.topics.ByName[schema.TopicUpdates].ID
	committed, ok, err := kafka.CommittedOffset(ctx, cl, schema.GroupFold, schema.TopicLikes, f.partition)
	if err != nil {
		return err
	}
	countsEmpty, err := f.isEmpty(ctx, schema.TopicCounts)
	if err != nil {
		return err
	}
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	// Counts that are not empty are of an earlier state table, and the fold corrects them.
	if err := f.produce(ctx, cl, &progress, countsEmpty); err != nil {
		return err
	}
	if ok && committed != start {
		id, next := schema.FoldTransactionalIDs(f.partition)[0], kafka.Position{Offset: start, Epoch: -1}
		source := kafka.LogPartition{Topic: schema.TopicLikes, TopicID: likes.ID, Partition: f.partition}
		if err := kafka.AddOffset(ctx, cl, id, schema.GroupFold, source, next); err != nil {
			return fmt.Errorf("committing the offset of group %s: %w", schema.GroupFold, err)
		}
	}
	return kafka.CommitTransaction(ctx, cl, schema.TopicState, f.partition)
}

// AllowVoids makes a partition of an earlier version take events that void users, from the next one on. Processors of
// earlier versions park it from then on.
func AllowVoids(ctx context.Context, cluster kafka.Options, cl *kgo.Client, topics kafka.Topics, partition int32,
	log *slog.Logger,
) error {
	f := firstProgress{kafka: cluster, log: log, cl: cl, topics: topics, partition: partition}
	_, err := f.amend(ctx, func(p *schema.Progress) bool { return !p.Voids },
		func(p *schema.Progress, _ int64) error {
			p.Voids, p.VoidsFrom = true, p.NextOffset
			return nil
		})
	if err != nil {
		return fmt.Errorf("allowing partition %d to void users: %w", partition, err)
	}
	return nil
}

// amend changes the progress record of a partition that needs it, and returns it, or nil. change gets the offset at
// which likes starts. The partition's processor is fenced, and reads the record again.
func (f *firstProgress) amend(ctx context.Context, needed func(*schema.Progress) bool,
	change func(p *schema.Progress, start int64) error,
) (updated *schema.Progress, err error) {
	err = kafka.RetryTakenOver(ctx, func() error {
		updated, err = f.amendOnce(ctx, needed, change)
		return err
	})
	return updated, err
}

func (f *firstProgress) amendOnce(ctx context.Context, needed func(*schema.Progress) bool,
	change func(p *schema.Progress, start int64) error,
) (*schema.Progress, error) {
	last := func() (*schema.Progress, error) {
		p, err := table.LastProgress(ctx, f.cl, f.partition)
		if err != nil || p == nil || p.StateID != f.topics.ByName[schema.TopicState].ID || !needed(p) {
			return nil, err
		}
		return p, nil
	}
	// Check before and after fencing: don't fence a running processor without need.
	if p, err := last(); err != nil || p == nil {
		return nil, err
	}
	cl, err := f.fence(ctx)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	p, err := last()
	switch {
	case err != nil || p == nil:
		return nil, err
	case p.Migrating: // what moves reactions has its own transactional id, and would overwrite the change
		return nil, fmt.Errorf("reactions are moving to partition %d; "+
			"run this again once `kudos topics repartition` has ended", f.partition)
	}
	complete, err := table.HasAllCounts(ctx, f.cl, f.partition, p)
	if err != nil {
		return nil, err
	}
	start, _, err := kafka.Bounds(ctx, cl, schema.TopicLikes, f.partition)
	if err != nil {
		return nil, err
	}
	if err := change(p, start); err != nil {
		return nil, err
	}
	if err := cl.BeginTransaction(); err != nil {
		return nil, err
	}
	if err = f.produce(ctx, cl, p, complete); err == nil {
		err = kafka.CommitTransaction(ctx, cl, schema.TopicState, f.partition)
	}
	return p, err
}

// fence stops the partition's processor: nothing else writes there from then on.
func (f *firstProgress) fence(ctx context.Context) (*kgo.Client, error) {
	ids := schema.FoldTransactionalIDs(f.partition)
	cl, err := f.kafka.NewFencingClient(ctx, f.log, ids, kgo.RecordDeliveryTimeout(f.kafka.RequestTimeout))
	if err != nil {
		return nil, fmt.Errorf("fencing partition %d: %w", f.partition, err)
	}
	return cl, nil
}

// produce writes a progress record to the state table, and to like-counts if that has all counts as of it.
func (f *firstProgress) produce(ctx context.Context, cl *kgo.Client, p *schema.Progress, counts bool) error {
	record := func(topic string) *kgo.Record {
		return &kgo.Record{Topic: topic, Partition: f.partition, Key: []byte(schema.StateProgressKey),
			Value: schema.AppendProgress(nil, p)}
	}
	records := []*kgo.Record{record(schema.TopicState)}
	if counts {
		records = append(records, record(schema.TopicCounts))
	}
	return cl.ProduceSync(ctx, records...).FirstErr()
}
