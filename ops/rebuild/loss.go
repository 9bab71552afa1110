package rebuild

import (
	"context"
	"fmt"

	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// loss is where a partition's fold goes on without the events that are gone.
type loss struct {
	partition int32
	// next is the offset in likes to go on at; nothing is lost where why is empty.
	next int64
	why  string
	// also is what is wrong besides, and set right where something is lost.
	also string
}

func (l loss) String() string {
	switch {
	case l.why == "" && l.also != "":
		return fmt.Sprintf("partition %d: nothing is lost, but %s", l.partition, l.also)
	case l.why == "":
		return fmt.Sprintf("partition %d: nothing is lost", l.partition)
	}
	return fmt.Sprintf("partition %d: %s; it goes on at offset %d", l.partition, l.why, l.next)
}

// acceptLoss has the fold go on with what likes still holds, where its next events are
// gone. What was folded stays folded: the state table, like-updates and MySQL go on.
func (b *Rebuild) acceptLoss(ctx context.Context) error {
	if err := kafka.RefuseMembers(ctx, b.cl, "processors", schema.GroupFold, schema.GroupApply); err != nil {
		return err
	}
	lost := make([]int32, 0, b.partitions())
	for partition := range b.partitions() {
		p, err := table.LastProgress(ctx, b.cl, partition)
		if err != nil {
			return err
		}
		l, err := b.findLoss(ctx, partition, p)
		if err != nil {
			return err
		}
		if err := b.person.Say(l.String()); err != nil {
			return err
		}
		if l.why != "" {
			lost = append(lost, partition)
		}
	}
	switch {
	case len(lost) == 0:
		return nil
	case b.opts.DryRun:
		return b.say("dry run: nothing was changed")
	}
	agreed, err := b.person.Agree("Give up the events that are gone, and go on with those that follow?")
	if err != nil || !agreed {
		return err
	}
	for _, partition := range lost {
		if err := b.skipLoss(ctx, partition); err != nil {
			return err
		}
	}
	return nil
}

// findLoss holds a partition's position against likes as it is now.
func (b *Rebuild) findLoss(ctx context.Context, partition int32, p *schema.Progress) (l loss, err error) {
	l.partition = partition
	likes := b.topics.ByName[schema.TopicLikes]
	if err := b.checkTable(p, partition); err != nil {
		return l, err
	}
	start, end, err := kafka.Bounds(ctx, b.cl, schema.TopicLikes, partition)
	if err != nil {
		return l, err
	}
	if p.SourceID != likes.ID {
		l.next, l.why = start, fmt.Sprintf("likes was deleted and created again, and what the earlier one had from offset %d on is gone", p.NextOffset)
		return l, nil
	}
	other, err := table.FindDisagreement(ctx, b.cl, b.topics, partition, p)
	if err != nil {
		return l, err
	}
	// An offset that alone is wrong is set right with the position, and with like-updates if that is to be made anew.
	if other != nil && !other.OffsetOnly && p.UpdatesID == b.topics.ByName[schema.TopicUpdates].ID {
		return l, disagree(other)
	}
	if other != nil {
		l.also = disagree(other).Error()
	}
	err = b.findGone(ctx, &l, p, start, end)
	return l, err
}

// findGone says which of the next events are gone from likes, if any.
func (b *Rebuild) findGone(ctx context.Context, l *loss, p *schema.Progress, start, end int64) error {
	if p.NextOffset < start {
		l.next, l.why = start, fmt.Sprintf("offsets %d to %d were deleted before they were folded", p.NextOffset, start-1)
		return nil
	}
	upTo := end
	if p.LeaderEpoch >= 0 {
		epochEnd, err := kafka.EpochEnd(ctx, b.cl, schema.TopicLikes, l.partition, p.LeaderEpoch)
		if err != nil {
			return err
		}
		if epochEnd >= 0 {
			upTo = min(upTo, epochEnd)
		}
	}
	if p.NextOffset > upTo {
		l.next, l.why = max(start, upTo), fmt.Sprintf("offsets %d to %d were folded, and then cut off by an unclean leader election; others may have their place", upTo, p.NextOffset-1)
	}
	return nil
}

// checkTable refuses a state table that has nothing to go on from here.
func (b *Rebuild) checkTable(p *schema.Progress, partition int32) error {
	switch {
	case p == nil:
		return fmt.Errorf("partition %d of the state table has no progress record; run `kudos topics apply`, or, if the state table was lost, `kudos rebuild --from-events`", partition)
	case p.Moving:
		return errMoving
	case p.ClusterID != b.topics.ClusterID || p.Partitions != b.partitions() || p.StateID != b.topics.ByName[schema.TopicState].ID:
		return fmt.Errorf("partition %d of the state table was made for other topics than there are (cluster %s, %d partitions); restore those", partition, p.ClusterID, p.Partitions)
	}
	return nil
}

// skipLoss moves the position of one partition, in one transaction.
func (b *Rebuild) skipLoss(ctx context.Context, partition int32) (err error) {
	// Before anything is read: nobody else writes from here on.
	t, err := begin(ctx, b.kafka, partition, b.opts.TransactionTimeout, b.log)
	if err != nil {
		return err
	}
	defer t.close()
	p, err := table.LastProgress(ctx, b.cl, partition)
	if err != nil {
		return err
	}
	l, err := b.findLoss(ctx, partition, p)
	if err != nil || l.why == "" {
		return err
	}
	w := &writer{b: b, t: t, partition: partition, progress: *p}
	// The epoch is not known: the records before may be those of any.
	w.progress.NextOffset, w.progress.LeaderEpoch = l.next, -1
	w.progress.SourceID = b.topics.ByName[schema.TopicLikes].ID
	if p.UpdatesID == b.topics.ByName[schema.TopicUpdates].ID {
		// Whoever reads the updates learns where their source goes on.
		if err := w.update(ctx, []byte(schema.ProgressKey), schema.ProgressUpdate(w.progress.Layouts, false)); err != nil {
			return err
		}
	}
	return w.end(ctx)
}
