package rebuild

import (
	"context"
	"errors"
	"fmt"

	"kudos/ops/audit"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
)

// job is the work on one partition in Kafka.
type job struct {
	partition int32
	// empty: like-updates has no committed record of the partition; otherwise they must match the state table.
	empty  bool
	until  int64 // offset of likes up to which events were folded, for a state table rebuilt from events
	events bool
	other  *table.Disagreement // how the committed offset differs from the state table; nil if it does not
}

func (j job) String() string {
	what := fmt.Sprintf("partition %d: ", j.partition)
	if j.events {
		what += fmt.Sprintf("the state table is rebuilt from %s up to offset %d; ", schema.TopicLikes, j.until)
	}
	if j.other != nil {
		what += j.other.Why + "; the fold resumes at the offset of the state table; "
	}
	if j.empty {
		return what + schema.TopicUpdates + " is empty and is rebuilt from the state table"
	}
	return what + schema.TopicUpdates + " has updates and is left unchanged if they belong to the state table"
}

// plan compares the current state with the goal, and changes nothing.
func (b *rebuild) plan(ctx context.Context) (jobs []job, err error) {
	for _, name := range []string{schema.TopicLikes, schema.TopicState} {
		if have := b.topics.ByName[name].Partitions; have != b.partitions() {
			return nil, fmt.Errorf("topic %s has %d partitions, %s has %d; "+
				"delete %s and run `kudos topics apply` with topics.partitions=%d",
				name, have, schema.TopicUpdates, b.partitions(), schema.TopicUpdates, have)
		}
	}
	jobs = make([]job, b.partitions())
	for partition := range b.partitions() {
		j := &jobs[partition]
		j.partition, j.events = partition, b.opts.Depth == Events
		if j.empty, err = table.IsEmpty(ctx, b.cl, schema.TopicUpdates, partition); err != nil {
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

// planUpdates finds whether the committed offset differs from the state table. A rebuilt like-updates starts from that
// table's position, and the committed offset is set to match. This resolves disagreements that likes cannot explain.
func (b *rebuild) planUpdates(ctx context.Context, j *job) error {
	p, err := table.LastProgress(ctx, b.cl, j.partition)
	if err != nil || p == nil { // do reports it
		return err
	}
	j.other, err = table.FindDisagreement(ctx, b.cl, b.topics, j.partition, p)
	return err
}

// errMigrating: reactions must have migrated before anything is rebuilt from the state table.
var errMigrating = errors.New("a repartition has not ended; finish it first: " + table.ActionRepartition)

// checkTable rejects a state table from which the fold cannot continue.
func (b *rebuild) checkTable(p *schema.Progress, partition int32) error {
	switch {
	case p == nil:
		return fmt.Errorf("partition %d of the state table has no progress record; run `kudos topics apply`, "+
			"or, if the state table was lost, `kudos rebuild --from-events`", partition)
	case p.Migrating:
		return errMigrating
	case p.ClusterID != b.topics.ClusterID, p.Partitions != b.partitions(),
		p.StateID != b.topics.ByName[schema.TopicState].ID:
		return fmt.Errorf("partition %d of the state table was written for other topics than the current ones "+
			"(cluster %s, %d partitions); restore those", partition, p.ClusterID, p.Partitions)
	}
	return nil
}

// checkSource is checkTable, and also rejects a state table that was folded from another likes topic.
func (b *rebuild) checkSource(p *schema.Progress, partition int32) error {
	if err := b.checkTable(p, partition); err != nil {
		return err
	}
	if p.SourceID != b.topics.ByName[schema.TopicLikes].ID {
		return fmt.Errorf("%s was deleted and recreated since partition %d was folded; "+
			"restore it, or start over in empty topics (`kudos topics apply`)", schema.TopicLikes, partition)
	}
	return nil
}

// checkCommitted rejects a state table that disagrees with the group's committed offset.
func (b *rebuild) checkCommitted(ctx context.Context, p *schema.Progress, partition int32) error {
	other, err := table.FindDisagreement(ctx, b.cl, b.topics, partition, p)
	if err == nil && other != nil {
		err = disagree(other)
	}
	return err
}

func disagree(d *table.Disagreement) error { return fmt.Errorf("%s; to fix this: %s", d.Why, d.Action) }

func (b *rebuild) do(ctx context.Context, j job) (err error) {
	w, err := b.begin(ctx, j.partition)
	if err != nil {
		return err
	}
	defer w.cl.Close()
	table, err := audit.NewTable(b.opts.Audit.TempDir, j.partition, b.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	if err := b.readTable(ctx, table, j.partition); err != nil {
		return err
	}
	if j.events {
		return b.fromEvents(ctx, j, w, table)
	}
	if err := b.checkSource(table.Progress, j.partition); err != nil {
		return err
	}
	if !j.empty {
		return b.leave(ctx, table.Progress, j.partition)
	}
	w.progress = *table.Progress
	// Kafka aborts the transaction after this time as well, counted from its first record.
	ctx, cancel := context.WithTimeout(ctx, b.opts.TransactionTimeout)
	defer cancel()
	return w.publish(ctx, table)
}

func (b *rebuild) readTable(ctx context.Context, table *audit.Table, partition int32) error {
	start, end, err := kafka.Bounds(ctx, b.cl, schema.TopicState, partition)
	if err != nil {
		return err
	}
	phase := b.phase("reading the state table", partition, "offsets", end-start)
	defer phase.End()
	return table.Read(ctx, b.cl, 0, phase.Add)
}

// leave checks a partition of like-updates that has updates, as after an earlier run: they must match the state table.
func (b *rebuild) leave(ctx context.Context, p *schema.Progress, partition int32) error {
	if err := b.checkCommitted(ctx, p, partition); err != nil {
		return err
	}
	if p.UpdatesID != b.topics.ByName[schema.TopicUpdates].ID {
		return fmt.Errorf("%s/%d has updates that do not belong to this state table; "+
			"delete the topic, run `kudos topics apply`, then run this again", schema.TopicUpdates, partition)
	}
	if _, err := audit.Locate(ctx, b.cl, partition, p.NextSeq); err != nil {
		return fmt.Errorf("%w (first delete the topic and run `kudos topics apply`)", err)
	}
	return b.say("partition %d: %s belongs to the state table; left unchanged", partition, schema.TopicUpdates)
}
