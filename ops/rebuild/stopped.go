package rebuild

import (
	"context"
	"fmt"

	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// job is what there is to do for a partition in Kafka.
type job struct {
	partition int32
	// empty: like-updates has no committed record of it. Otherwise it is there
	// already, and has to belong to the state table.
	empty bool
	// until is the offset of likes that the fold has come to, for a state table made
	// from events.
	until  int64
	events bool
	// other is what the committed offset is, if it is not that of the state table.
	other *table.Disagreement
}

func (j job) String() string {
	what := fmt.Sprintf("partition %d: ", j.partition)
	if j.events {
		what += fmt.Sprintf("the state table is made anew from %s up to offset %d; ", schema.TopicLikes, j.until)
	}
	if j.other != nil {
		what += j.other.Why + "; events are folded from where the state table stands; "
	}
	if j.empty {
		return what + schema.TopicUpdates + " is empty, and made anew from the state table"
	}
	return what + schema.TopicUpdates + " has updates, and stays as it is if they belong to the state table"
}

// plan holds what is there against what has to be, and changes nothing.
func (b *Rebuild) plan(ctx context.Context) ([]job, error) {
	// One that starts later fences the transaction under way, which then fails; nothing
	// goes wrong but the rebuild.
	if err := kafka.RefuseMembers(ctx, b.cl, "processors", schema.GroupFold, schema.GroupApply); err != nil {
		return nil, err
	}
	for _, name := range []string{schema.TopicLikes, schema.TopicState} {
		if have := b.topics.ByName[name].Partitions; have != b.partitions() {
			return nil, fmt.Errorf("topic %s has %d partitions, %s has %d; delete %s and run `kudos topics apply` with topics.partitions=%d", name, have, schema.TopicUpdates, b.partitions(), schema.TopicUpdates, have)
		}
	}
	jobs := make([]job, b.partitions())
	for partition := range b.partitions() {
		j := &jobs[partition]
		j.partition, j.events = partition, b.opts.Depth == Events
		var err error
		if j.empty, err = b.isEmpty(ctx, schema.TopicUpdates, partition); err != nil {
			return nil, err
		}
		if j.events {
			err = b.planEvents(ctx, j)
		} else if j.empty {
			err = b.planUpdates(ctx, j)
		}
		if err != nil {
			return nil, err
		}
	}
	return jobs, nil
}

// planUpdates finds out what the committed offset is. Like-updates that is made from the state table goes on where
// that stands, and so does the group: this is what helps when they disagree and likes alone does not explain the table.
func (b *Rebuild) planUpdates(ctx context.Context, j *job) error {
	p, err := table.LastProgress(ctx, b.cl, j.partition)
	if err != nil || p == nil { // is said when it is done
		return err
	}
	j.other, err = table.FindDisagreement(ctx, b.cl, b.topics, j.partition, p)
	return err
}

// isEmpty tells whether a partition has no committed record.
func (b *Rebuild) isEmpty(ctx context.Context, topic string, partition int32) (empty bool, err error) {
	start, _, err := kafka.Bounds(ctx, b.cl, topic, partition)
	if err != nil {
		return false, err
	}
	empty = true
	err = kafka.ReadLog(ctx, b.cl, topic, partition, start, func(c kafka.LogChunk) (bool, error) {
		empty = len(c.Records) == 0
		return empty && c.Next < c.End, nil
	})
	return empty, err
}
