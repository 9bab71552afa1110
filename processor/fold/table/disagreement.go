package table

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
	"kudos/stream/kafka"
)

// Disagreement is a mismatch of state table and committed offset, which are always written in one transaction.
type Disagreement struct {
	OffsetOnly  bool   // the state table and like-updates agree: only the committed offset is wrong
	Why, Action string // what is known of the cause; what an operator can do on this cluster
}

// FindDisagreement compares what one transaction writes: the progress record, the last record of like-updates and the
// committed offset. It returns nil if the offset is that of the progress record, or there is none: offsets expire.
func FindDisagreement(ctx context.Context, cl kmsg.Requestor, topics kafka.Topics, partition int32, p *schema.Progress,
) (*Disagreement, error) {
	committed, ok, err := kafka.CommittedOffset(ctx, cl, schema.GroupFold, schema.TopicLikes, partition)
	if err != nil || !ok || committed == p.NextOffset {
		return nil, err
	}
	d := &Disagreement{Why: fmt.Sprintf("the state table is at offset %d of %s/%d, but the group has committed %d",
		p.NextOffset, schema.TopicLikes, partition, committed)}
	if p.UpdatesID != topics.ByName[schema.TopicUpdates].ID {
		d.Why += fmt.Sprintf(", and %s does not belong to the state table", schema.TopicUpdates)
		d.Action = ActionUpdatesLost
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
			" agrees with the state table, so the group's offsets were reset, or Kafka committed a transaction in part"
	case seq > p.NextSeq:
		d.Why += fmt.Sprintf(" and published up to %d: the state table was lost or rewound, "+
			"or Kafka committed a transaction in part", source)
	default: // seen in chaos tests: see Kafka in docs/design.md
		d.Why += fmt.Sprintf(" and published up to %d: Kafka committed a transaction in part, or %s was rewound",
			source, schema.TopicUpdates)
	}
	d.Action, err = d.action(ctx, cl, partition, p)
	return d, err
}

// action returns one that works on this cluster: if retention has deleted folded events of likes, or reactions have
// moved between partitions, the state table cannot be rebuilt from the events alone.
func (d *Disagreement) action(ctx context.Context, cl kmsg.Requestor, partition int32, p *schema.Progress,
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
	return fmt.Sprintf("restore the topic %s, or, if offsets %d to %d of %s/%d are permanently lost: "+
		"stop the processors, delete %s, then: kudos topics apply, kudos rebuild --accept-loss, "+
		"and kudos rebuild --updates",
		schema.TopicState, p.NextOffset, gone-1, schema.TopicLikes, partition, schema.TopicUpdates), nil
}
