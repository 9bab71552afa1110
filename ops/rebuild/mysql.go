package rebuild

import (
	"context"
	"errors"
	"fmt"

	"kudos/ops/audit"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// rebuildMySQL rebuilds the tables from the state table. Processors may keep running: what they apply to the old tables
// meanwhile, they apply again to the new ones, whose position is earlier. It rebuilds one shard after the other. Each
// has its own positions, so it is correct after its RENAME whatever happens to the others.
func (b *rebuild) rebuildMySQL(ctx context.Context, agreed bool) (err error) {
	db, err := sql.Open(b.mysql, b.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.CheckSchema(ctx); err != nil {
		return err
	}
	c, err := audit.Compare(ctx, b.opts.Audit, b.kafka, db, b.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	b.result.Report = c.Report
	positions, err := b.positions(ctx, c)
	if err != nil {
		return err
	}
	if err := b.person.Show(c.Report); err != nil {
		return err
	}
	if b.opts.DryRun {
		return b.say("dry run: nothing was changed")
	}
	if !agreed {
		agreed, err = b.person.Agree(b.question())
		if err != nil || !agreed {
			return err
		}
	}
	for _, shard := range b.mysql.Each() {
		if err := b.replace(ctx, shard, c, positions); err != nil {
			return err
		}
	}
	b.result.Swapped = true
	return nil
}

func (b *rebuild) question() string {
	old := "The current tables are kept as like_count" + sql.OldSuffix + " and so on, replacing tables kept earlier."
	if b.opts.DropOld {
		old = "The current tables are dropped."
	}
	where := ""
	if n := len(b.mysql.Each()); n > 1 {
		where = fmt.Sprintf(", in all %d databases", n)
	}
	return "Replace like_count, like_hourly and applied_offset with tables rebuilt from the state table" + where +
		"? " + old
}

// positions locates the position of each partition's state table in like-updates, and rejects one that does not match.
func (b *rebuild) positions(ctx context.Context, c *audit.Comparison) (positions []sql.Position, err error) {
	positions = make([]sql.Position, c.Source.Partitions)
	for partition := range c.Source.Partitions {
		p := c.State(partition)
		switch {
		case p == nil:
			return nil, fmt.Errorf("partition %d of the state table has no progress record, "+
				"so there is nothing to rebuild MySQL from; run `kudos topics apply`, "+
				"or, if the state table was lost, `kudos rebuild --from-events`", partition)
		case p.Migrating:
			return nil, errMigrating
		case p.Layouts != c.State(0).Layouts: // with different layouts, counts would be missing
			return nil, errors.New("a repartition ran while the state table was read; run this again")
		case p.ClusterID != b.topics.ClusterID || p.Partitions != c.Source.Partitions:
			return nil, fmt.Errorf("partition %d of the state table belongs to cluster %s with %d partitions, "+
				"but this is cluster %s with %d; restore the topics that belong together",
				partition, p.ClusterID, p.Partitions, b.topics.ClusterID, c.Source.Partitions)
		case p.UpdatesID != c.Source.TopicID:
			return nil, fmt.Errorf("the state table of partition %d belongs to a like-updates topic "+
				"that is not the current one; stop the processors and run `kudos rebuild --updates`", partition)
		}
		if positions[partition], err = audit.Locate(ctx, b.cl, partition, p.NextSeq); err != nil {
			return nil, err
		}
	}
	return positions, nil
}

// replace fills the shadow tables of a shard and swaps them in.
func (b *rebuild) replace(ctx context.Context, shard sql.Options, c *audit.Comparison, positions []sql.Position,
) (err error) {
	shadow, err := sql.NewShadow(ctx, shard, b.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shadow.Close()) }()
	if err := b.fill(ctx, shadow, shard.Shard, c); err != nil {
		return err
	}
	if err := shadow.SetPositions(ctx, c.Source, positions); err != nil {
		return err
	}
	// Check again, because the steps above may have taken long.
	topics, err := kafka.LookUpTopics(ctx, b.cl, schema.TopicUpdates)
	if err != nil {
		return err
	}
	if topics.ByName[schema.TopicUpdates].ID != c.Source.TopicID {
		return fmt.Errorf("%s was deleted and recreated meanwhile; nothing was changed in MySQL at %s",
			schema.TopicUpdates, shadow)
	}
	if err := shadow.Swap(ctx, b.opts.DropOld); err != nil {
		return err
	}
	if shard.Shard.Count() == 1 {
		return nil // already reported in the result
	}
	return b.say("rebuilt: MySQL at %s", shadow)
}

const fillRows = 20_000 // chunk size for filling the tables

func (b *rebuild) fill(ctx context.Context, shadow *sql.Shadow, shard sql.Shard, c *audit.Comparison) error {
	total := (c.Report.Posts.Compared + c.Report.Hours.Compared) / int64(shard.Count())
	phase := b.opts.Audit.Progress.Begin("filling the new tables at "+shadow.String(), "rows", total)
	defer phase.End()
	counts := make([]sql.CountDelta, 0, fillRows)
	flushCounts := func() error {
		b.result.Posts += int64(len(counts))
		phase.Add(int64(len(counts)))
		err := shadow.AddCounts(ctx, counts)
		counts = counts[:0]
		return err
	}
	err := c.EachCount(func(of int32, d sql.CountDelta) error {
		if of != shard.Index {
			return nil
		}
		if counts = append(counts, d); len(counts) < fillRows {
			return nil
		}
		return flushCounts()
	})
	if err = errors.Join(err, flushCounts()); err != nil {
		return err
	}
	hours, partition := make([]sql.HourDelta, 0, fillRows), int32(0)
	flushHours := func() error {
		b.result.Hours += int64(len(hours))
		phase.Add(int64(len(hours)))
		err := shadow.AddHours(ctx, partition, hours)
		hours = hours[:0]
		return err
	}
	err = c.EachHour(func(p int32, d sql.HourDelta) error {
		if !shard.Has(p) {
			return nil
		}
		if p != partition || len(hours) == fillRows {
			if err := flushHours(); err != nil {
				return err
			}
			partition = p
		}
		hours = append(hours, d)
		return nil
	})
	return errors.Join(err, flushHours())
}
