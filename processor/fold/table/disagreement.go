package table

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
	"kudos/stream/kafka"
)

// Disagreement is a mismatch of a partition's state table and the committed offset of the fold's group, which are
// always written in one transaction.
type Disagreement struct {
	// OffsetOnly: the state table and like-updates agree, so only the committed offset is wrong.
	OffsetOnly bool
	// Why is what is known of the cause, Remedy what an operator can do on this cluster.
	Why, Remedy string
}

// FindDisagreement compares what one transaction writes: the progress record, the last record of like-updates and the
// committed offset. It returns nil if the offset is that of the progress record, or there is none: offsets expire.
func FindDisagreement(
	ctx context.Context, cl kmsg.Requestor, topics kafka.Topics, partition int32, p *schema.Progress,
) (*Disagreement, error) {
	committed, ok, err := kafka.CommittedOffset(ctx, cl, schema.GroupFold, schema.TopicLikes, partition)
	if err != nil || !ok || committed == p.NextOffset {
		return nil, err
	}
	d := &Disagreement{Why: fmt.Sprintf("the state table stands at offset %d of %s/%d, but the group has committed %d",
		p.NextOffset, schema.TopicLikes, partition, committed)}
	if p.UpdatesID != topics.ByName[schema.TopicUpdates].ID {
		d.Why += fmt.Sprintf(", and %s is not that of the state table", schema.TopicUpdates)
		d.Remedy = ActionUpdatesLost
		return d, nil
	}
	last, err := LastUpdate(ctx, cl, partition)
	if err != nil {
		return nil, err
	}
	seq, source := uint64(0), p.NextOffset // of a partition that has published nothing
	if last != nil {
		seq, source = last.Seq+1, last.SourceOffset
	}
	switch {
	case seq == p.NextSeq && source == p.NextOffset:
		d.OffsetOnly = true
		d.Why += ": " + schema.TopicUpdates +
			" agrees with the state table, so somebody reset the group, or Kafka committed a transaction in part"
	case seq > p.NextSeq:
		d.Why += fmt.Sprintf(" and published up to %d: the state table was lost or went back, "+
			"or Kafka committed a transaction in part", source)
	default: // seen in chaos tests: see Kafka in docs/design.md
		d.Why += fmt.Sprintf(" and published up to %d: Kafka committed a transaction in part, or %s went back",
			source, schema.TopicUpdates)
	}
	d.Remedy, err = d.remedy(ctx, cl, partition, p)
	return d, err
}

// remedy returns one that works on this cluster: if retention has deleted folded events of likes, or reactions have
// moved between partitions, the state table cannot be rebuilt from the events alone.
func (d *Disagreement) remedy(
	ctx context.Context, cl kmsg.Requestor, partition int32, p *schema.Progress,
) (string, error) {
	if d.OffsetOnly {
		return ActionOffsets, nil
	}
	whole, gone := p.Layouts == 0, int64(0)
	for other := range p.Partitions { // a rebuild covers all partitions
		start, _, err := kafka.Bounds(ctx, cl, schema.TopicLikes, other)
		if err != nil {
			return "", err
		}
		whole = whole && start == 0
		if other == partition {
			gone = start
		}
	}
	switch {
	case whole:
		return ActionFromEvents, nil
	case p.NextOffset >= gone:
		return ActionUpdates, nil
	}
	return fmt.Sprintf("restore the topic %s, or, if offsets %d to %d of %s/%d are lost for good: "+
		"stop the processors, delete %s, then: kudos topics apply, kudos rebuild --accept-loss, "+
		"and kudos rebuild --updates",
		schema.TopicState, p.NextOffset, gone-1, schema.TopicLikes, partition, schema.TopicUpdates), nil
}
