package rebuild

import (
	"context"
	"fmt"

	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// repair checks each partition, asks once, and repairs those that are wrong. find checks a partition and describes the
// result; it is called again once nothing else writes there.
func (b *rebuild) repair(ctx context.Context, question string,
	find func(partition int32) (l loss, says string, wrong bool, err error), fix func(*writer, loss) error,
) error {
	var partitions []int32
	for partition := range b.partitions() {
		_, says, wrong, err := find(partition)
		if err != nil {
			return err
		}
		if err := b.person.Say(says); err != nil {
			return err
		}
		if wrong {
			partitions = append(partitions, partition)
		}
	}
	switch {
	case len(partitions) == 0:
		return nil
	case b.opts.DryRun:
		return b.say("dry run: nothing was changed")
	}
	agreed, err := b.person.Agree(question)
	if err != nil || !agreed {
		return err
	}
	for _, partition := range partitions {
		w, err := b.begin(ctx, partition)
		if err != nil {
			return err
		}
		l, _, wrong, err := find(partition)
		if err == nil && wrong {
			err = fix(w, l)
		}
		w.cl.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// loss is where the fold of a partition continues if its next events are gone.
type loss struct {
	partition int32
	p         *schema.Progress
	// next is the offset in likes at which to continue. If why is empty, nothing is lost.
	next  int64
	why   string
	other *table.Disagreement // what is wrong with the committed offset; it is corrected along with a loss
}

func (l loss) String() string {
	switch {
	case l.why == "" && l.other != nil:
		return fmt.Sprintf("partition %d: nothing is lost, but %v", l.partition, disagree(l.other))
	case l.why == "":
		return fmt.Sprintf("partition %d: nothing is lost", l.partition)
	}
	return fmt.Sprintf("partition %d: %s; it continues at offset %d", l.partition, l.why, l.next)
}

// acceptLoss makes the fold continue with the events that likes still has, where its next ones are gone. What was
// folded stays: in the state table, like-updates and MySQL only the position changes.
func (b *rebuild) acceptLoss(ctx context.Context) error {
	find := func(partition int32) (loss, string, bool, error) {
		l, err := b.findLoss(ctx, partition)
		return l, l.String(), l.why != "", err
	}
	question := "Give up the events that are lost, and continue with those that follow?"
	return b.repair(ctx, question, find, func(w *writer, l loss) error {
		w.progress = *l.p
		// The epoch is unknown: the records before may be from any epoch.
		w.progress.NextOffset, w.progress.LeaderEpoch = l.next, -1
		w.progress.SourceID = b.topics.ByName[schema.TopicLikes].ID
		if l.p.UpdatesID == b.topics.ByName[schema.TopicUpdates].ID {
			// Tell consumers of the updates where their source continues.
			u := schema.ProgressUpdate(w.progress.Layouts, false)
			if err := w.update(ctx, []byte(schema.ProgressKey), u); err != nil {
				return err
			}
		}
		return w.commit(ctx)
	})
}

// findLoss compares the position of a partition with the current likes.
func (b *rebuild) findLoss(ctx context.Context, partition int32) (l loss, err error) {
	p, err := table.LastProgress(ctx, b.cl, partition)
	if err != nil {
		return l, err
	}
	if err := b.checkTable(p, partition); err != nil {
		return l, err
	}
	l.partition, l.p = partition, p
	if p.SourceID != b.topics.ByName[schema.TopicLikes].ID {
		l.next, _, err = kafka.Bounds(ctx, b.cl, schema.TopicLikes, partition)
		l.why = fmt.Sprintf("likes was deleted and recreated, "+
			"and the events of the earlier topic from offset %d on are lost", p.NextOffset)
		return l, err
	}
	other, err := table.FindDisagreement(ctx, b.cl, b.topics, partition, p)
	if err != nil {
		return l, err
	}
	// If only the offset is wrong, it is corrected together with the position, or when like-updates is rebuilt.
	if other != nil && !other.OffsetOnly && p.UpdatesID == b.topics.ByName[schema.TopicUpdates].ID {
		return l, disagree(other)
	}
	l.other = other
	l.next, l.why, err = b.findGone(ctx, partition, p)
	return l, err
}

// findGone returns which of the next events are gone from likes, if any, and where to continue.
func (b *rebuild) findGone(ctx context.Context, partition int32, p *schema.Progress,
) (next int64, why string, err error) {
	start, end, err := kafka.Bounds(ctx, b.cl, schema.TopicLikes, partition)
	if err != nil {
		return 0, "", err
	}
	if p.NextOffset < start {
		return start, fmt.Sprintf("offsets %d to %d were deleted before they were folded", p.NextOffset, start-1), nil
	}
	if p.LeaderEpoch >= 0 {
		epochEnd, err := kafka.EpochEnd(ctx, b.cl, schema.TopicLikes, partition, p.LeaderEpoch)
		if err != nil {
			return 0, "", err
		}
		if epochEnd >= 0 {
			end = min(end, epochEnd)
		}
	}
	if p.NextOffset > end {
		return max(start, end), fmt.Sprintf("offsets %d to %d were folded, and then truncated by an "+
			"unclean leader election; other events may have these offsets now", end, p.NextOffset-1), nil
	}
	return 0, "", nil
}

// commitOffsets commits the offset of the progress record for the fold's group again, where only that offset is wrong.
// The state table, like-updates and MySQL are complete and stay as they are.
func (b *rebuild) commitOffsets(ctx context.Context) error {
	find := func(partition int32) (l loss, says string, wrong bool, err error) {
		l, err = b.findOffset(ctx, partition)
		if err != nil || l.other == nil {
			return l, fmt.Sprintf("partition %d: the committed offset is correct", partition), false, err
		}
		says = fmt.Sprintf("partition %d: %s; offset %d is committed again", partition, l.other.Why, l.p.NextOffset)
		return l, says, true, nil
	}
	question := "Commit the offsets of the state table for group " + schema.GroupFold + "?"
	return b.repair(ctx, question, find, func(w *writer, l loss) error {
		w.progress = *l.p // written again unchanged: the client drops a transaction that has only offsets
		return w.commit(ctx)
	})
}

// findOffset finds a wrong committed offset. It is findLoss, but rejects what committing it would not correct.
func (b *rebuild) findOffset(ctx context.Context, partition int32) (loss, error) {
	l, err := b.findLoss(ctx, partition)
	switch {
	case err != nil:
		return l, err
	case l.other != nil && !l.other.OffsetOnly:
		return l, disagree(l.other)
	case l.why != "" && (l.other != nil || l.p.SourceID != b.topics.ByName[schema.TopicLikes].ID):
		return l, fmt.Errorf("partition %d: %s; run `kudos rebuild --accept-loss`, which also sets the offset",
			partition, l.why)
	}
	return l, nil
}
