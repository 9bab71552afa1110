package rebuild

import (
	"context"
	"fmt"

	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// commitOffsets commits the offset of the progress record for the fold's group again, where that offset alone is wrong.
// Nothing is made anew: the state table, like-updates and MySQL have it all.
func (b *Rebuild) commitOffsets(ctx context.Context) error {
	if err := kafka.RefuseMembers(ctx, b.cl, "processors", schema.GroupFold, schema.GroupApply); err != nil {
		return err
	}
	wrong := make([]int32, 0, b.partitions())
	for partition := range b.partitions() {
		p, other, err := b.findOffset(ctx, partition)
		switch {
		case err != nil:
			return err
		case other == nil:
			err = b.say("partition %d: the committed offset is right", partition)
		default:
			wrong = append(wrong, partition)
			err = b.say("partition %d: %s; offset %d is committed again", partition, other.Why, p.NextOffset)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case len(wrong) == 0:
		return nil
	case b.opts.DryRun:
		return b.say("dry run: nothing was changed")
	}
	agreed, err := b.person.Agree("Commit the offsets that the state table stands at for group " + schema.GroupFold + "?")
	if err != nil || !agreed {
		return err
	}
	for _, partition := range wrong {
		if err := b.commitOffset(ctx, partition); err != nil {
			return err
		}
	}
	return nil
}

const lossInstead = "run `kudos rebuild --accept-loss`, which sets the offset, too"

// findOffset returns the progress record of a partition, and how the committed offset disagrees with it; nil if it
// does not. It refuses whatever a committed offset would not set right.
func (b *Rebuild) findOffset(ctx context.Context, partition int32) (*schema.Progress, *table.Disagreement, error) {
	p, err := table.LastProgress(ctx, b.cl, partition)
	if err != nil {
		return nil, nil, err
	}
	if err := b.checkTable(p, partition); err != nil {
		return nil, nil, err
	}
	if p.SourceID != b.topics.ByName[schema.TopicLikes].ID {
		return nil, nil, fmt.Errorf("%s was deleted and created again since partition %d was folded; %s",
			schema.TopicLikes, partition, lossInstead)
	}
	other, err := table.FindDisagreement(ctx, b.cl, b.topics, partition, p)
	if err != nil || other == nil {
		return p, nil, err
	}
	if !other.OffsetOnly {
		return nil, nil, disagree(other)
	}
	start, end, err := kafka.Bounds(ctx, b.cl, schema.TopicLikes, partition)
	if err != nil {
		return nil, nil, err
	}
	l := loss{partition: partition}
	if err := b.findGone(ctx, &l, p, start, end); err != nil {
		return nil, nil, err
	}
	if l.why != "" {
		return nil, nil, fmt.Errorf("partition %d: %s; %s", partition, l.why, lossInstead)
	}
	return p, other, nil
}

// commitOffset commits the offset of one partition, under its transactional id. The progress record goes with it, as
// it is: the client drops a transaction of offsets alone.
func (b *Rebuild) commitOffset(ctx context.Context, partition int32) error {
	// Before anything is read: nobody else writes from here on.
	t, err := begin(ctx, b.kafka, partition, b.opts.TransactionTimeout, b.log)
	if err != nil {
		return err
	}
	defer t.close()
	p, other, err := b.findOffset(ctx, partition)
	if err != nil || other == nil {
		return err
	}
	w := &writer{b: b, t: t, partition: partition, progress: *p}
	return w.end(ctx)
}
