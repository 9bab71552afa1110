package audit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sethvargo/go-retry"

	"kudos/schema"
	"kudos/sql"
)

// copyMySQL copies MySQL's rows to the ledger, from one snapshot per shard, each held only while it is copied.
func (c *Comparison) copyMySQL(ctx context.Context) error {
	backoff := retry.WithMaxRetries(5, retry.NewExponential(200*time.Millisecond))
	return retry.Do(ctx, backoff, func(ctx context.Context) error {
		err := c.copySnapshots(ctx)
		if sql.IsTransient(err) {
			return retry.RetryableError(err)
		}
		return err
	})
}

// copySnapshots first discards what an earlier try has copied.
func (c *Comparison) copySnapshots(ctx context.Context) error {
	if err := c.ledger.clear(); err != nil {
		return err
	}
	for _, p := range c.parts {
		p.posts, p.hours, p.placed = schema.Counts{}, schema.Counts{}, false
	}
	c.Report.Problems, c.Report.Strays = []string{}, Section[StrayRow]{Rows: []StrayRow{}}
	for _, store := range c.db.All() {
		if err := c.copySnapshot(ctx, store); err != nil {
			return err
		}
	}
	return nil
}

func (c *Comparison) copySnapshot(ctx context.Context, store *sql.Store) error {
	return store.Snapshot(ctx, func(v *sql.Snapshot) error {
		rows, err := v.Positions(ctx)
		if err != nil {
			return err
		}
		phase := c.opts.Progress.Begin("reading MySQL at "+store.String(), "rows", v.Rows(ctx))
		defer phase.End()
		page := c.ledger.newPage()
		defer page.close()
		counted := false
		err = v.EachCount(ctx, func(row sql.PostCount) error {
			counted = true
			phase.Add(1)
			return c.copyCount(page, store, row)
		})
		if err == nil {
			err = v.EachHour(ctx, func(row sql.HourCount) error {
				counted = true
				phase.Add(1)
				return c.copyHour(page, store, row)
			})
		}
		if err != nil {
			return err
		}
		c.place(store, rows, counted)
		return page.flush()
	})
}

func (c *Comparison) copyCount(page *page, store *sql.Store, row sql.PostCount) error {
	counts := schema.Counts{Likes: row.Likes, Dislikes: row.Dislikes}
	owners := c.layout.PartitionsOf(row.PostID)
	c.Report.Strays.Compared++
	at := slices.IndexFunc(owners, store.Shard().Has)
	if at < 0 {
		if counts != (schema.Counts{}) { // zeros remain when the post has moved out of this shard
			c.stray(store, "like_count", fmt.Sprintf("post %d", row.PostID), owners[0], counts)
		}
		return nil
	}
	p := c.parts[owners[at]]
	p.posts = p.posts.Plus(counts)
	return page.set(mysqlCount, appendCount(nil, row.PostID, store.Shard().Index), p.id, counts)
}

func (c *Comparison) copyHour(page *page, store *sql.Store, row sql.HourCount) error {
	counts := schema.Counts{Likes: row.Likes, Dislikes: row.Dislikes}
	if row.Partition < 0 || int(row.Partition) >= len(c.parts) {
		c.problem("like_hourly has a row of partition %d (%s, %s: %s), but like-updates has %d partitions",
			row.Partition, row.Hour.Format(time.DateTime), row.Region, counts, len(c.parts))
		return nil
	}
	c.Report.Strays.Compared++
	if !store.Shard().Has(row.Partition) {
		c.stray(store, "like_hourly", row.Hour.Format(hourFormat)+" "+row.Region, row.Partition, counts)
		return nil
	}
	p := c.parts[row.Partition]
	p.hours = p.hours.Plus(counts)
	at := cell{Partition: c.hoursOf(row.Partition), Unix: row.Hour.Unix()}
	copy(at.Region[:], row.Region) // a VARCHAR(6)
	return page.add(mysqlHour, appendCell(nil, at), p.id, counts)
}

// stray reports a row of a partition that belongs to another shard.
func (c *Comparison) stray(store *sql.Store, table, row string, partition int32, counts schema.Counts) {
	c.Report.Strays.found(StrayRow{Table: table, Row: row, Partition: partition, Shard: store.Shard().Index,
		Belongs: c.shardOf(partition), MySQL: counts}, c.opts.Limit)
}

// place sets the position of each partition of a shard. counted says whether the shard has any counts.
func (c *Comparison) place(store *sql.Store, rows []sql.StoredPosition, counted bool) {
	has := map[int32]bool{}
	for _, row := range rows {
		switch {
		case row.Topic != c.Source.Topic:
			c.problem("applied_offset has a row of an unknown topic: %s, partition %d", row.Topic, row.Partition)
		case row.Partition < 0 || int(row.Partition) >= len(c.parts):
			c.problem("applied_offset has a row of partition %d, but like-updates has %d partitions",
				row.Partition, len(c.parts))
		case !store.Shard().Has(row.Partition):
			c.problem("applied_offset at %s has a row of partition %d, which belongs to %s",
				store, row.Partition, c.db.Of(row.Partition).Shard())
		default:
			has[row.Partition] = true
			p, err := c.parts[row.Partition], row.Of(c.Source)
			p.applied, p.placed = row.Position, err == nil
			if err != nil {
				c.problem("partition %d: %v", row.Partition, err)
			}
		}
	}
	for _, p := range c.parts {
		switch {
		case has[p.id], !store.Shard().Has(p.id):
		case len(has) == 0 && !counted: // nothing was ever applied, so this is the start
			p.placed = true
		default:
			c.problem("applied_offset has no row for partition %d, but MySQL has counts: "+
				"their position is unknown", p.id)
		}
	}
}
