package repartition

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/ops/await"
	"kudos/ops/topics"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// lock stops the fold, partition by partition. Partitions that are not locked yet fold by the previous layout, in which
// they own everything they have. No partition folds by the new layout before all are locked.
func (r *repartition) lock(ctx context.Context) error {
	phase := r.opts.Progress.Begin("stopping the fold", "partitions", int64(len(r.progress)))
	defer phase.End()
	return r.each(ctx, int32(len(r.progress)), func(ctx context.Context, partition int32) error {
		defer phase.Add(1)
		if now := r.progress[partition]; now == nil || now.Migrating {
			return nil
		}
		return kafka.RetryTakenOver(ctx, func() error { return r.lockOnce(ctx, partition) })
	})
}

// lockOnce uses the partition's transactional id, which fences its processor and makes all commits readable.
func (r *repartition) lockOnce(ctx context.Context, partition int32) error {
	t, err := r.begin(ctx, schema.FoldTransactionalIDs(partition)...)
	if err != nil {
		return err
	}
	defer t.cl.Close()
	p, err := table.LastProgress(ctx, r.cl, partition)
	switch {
	case err != nil:
		return err
	case p == nil:
		return fmt.Errorf("partition %d of the state table has lost its progress record", partition)
	case p.Migrating:
		return nil
	}
	if err := r.belongs(partition, p); err != nil {
		return err
	}
	if err := t.locate(ctx, partition, p); err != nil {
		return err
	}
	p.Partitions, p.UserBuckets, p.Layouts, p.Migrating = r.layout.Partitions, r.layout.UserBuckets(), r.layouts, true
	t.progress(partition, p)
	sent, err := t.commit(ctx)
	if err != nil {
		return err
	}
	return await.Visible(ctx, r.cl, sent...)
}

// grow adds partitions in Kafka. Ranking topics keep theirs.
func (r *repartition) grow(ctx context.Context) error {
	want := r.layout.Partitions
	adm := kadm.NewClient(r.cl)
	for _, name := range growing {
		if have := r.topics.ByName[name].Partitions; have < want {
			responses, err := adm.UpdatePartitions(ctx, int(want), name)
			if err == nil {
				err = responses.Error()
			}
			if err != nil {
				return fmt.Errorf("adding partitions to topic %s: %w", name, err)
			}
			if err := r.say("topic %s: %d partitions, was %d", name, want, have); err != nil {
				return err
			}
		}
		if err := topics.AwaitLeaders(ctx, r.cl, name, want); err != nil {
			return err
		}
	}
	return r.lookUp(ctx)
}

// addProgress writes the first progress record of each added partition, locked like the others.
func (r *repartition) addProgress(ctx context.Context) error {
	locked, err := table.LastProgress(ctx, r.cl, 0) // not that of plan, which may have changed before the lock
	if err != nil {
		return err
	}
	common := schema.Progress{Partitions: r.layout.Partitions, UserBuckets: r.layout.UserBuckets(), Layouts: r.layouts,
		Migrating: true, Alternating: locked.Alternating, Regions: locked.Regions.Everywhere(),
		Voids: locked.Voids, Added: locked.Voids}
	return r.each(ctx, r.layout.Partitions, func(ctx context.Context, partition int32) error {
		if int(partition) < len(r.progress) && r.progress[partition] != nil {
			return nil
		}
		if err := topics.AddFirstProgress(ctx, r.kafka, r.cl, r.topics, partition, common, r.log); err != nil {
			return err
		}
		what := fmt.Sprintf("the first record of partition %d to become visible", partition)
		return await.Until(ctx, what, func(ctx context.Context) (bool, error) {
			first, err := table.LastProgress(ctx, r.cl, partition)
			return first != nil, err
		})
	})
}
