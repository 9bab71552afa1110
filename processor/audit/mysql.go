package audit

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/sethvargo/go-retry"

	"kudos/schema"
	"kudos/sql"
)

const (
	snapshotRetries = 5
	snapshotBackoff = 200 * time.Millisecond
)

// copyMySQL lays down what MySQL holds, as of one moment. The snapshot is held for as
// long as the copying takes, and no longer.
func (c *Comparison) copyMySQL(ctx context.Context) error {
	backoff := retry.WithMaxRetries(snapshotRetries, retry.NewExponential(snapshotBackoff))
	return retry.Do(ctx, backoff, func(ctx context.Context) error {
		err := c.copySnapshot(ctx)
		if sql.IsTransient(err) {
			return retry.RetryableError(err)
		}
		return err
	})
}

func (c *Comparison) copySnapshot(ctx context.Context) error {
	if err := c.ledger.db.DeleteRange([]byte{byte(mysqlHour)}, []byte{byte(mysqlHour) + 1}, pebble.NoSync); err != nil {
		return fmt.Errorf("writing temporary files: %w", err)
	}
	if err := c.ledger.db.DeleteRange([]byte{byte(mysqlCount)}, []byte{byte(mysqlCount) + 1}, pebble.NoSync); err != nil {
		return fmt.Errorf("writing temporary files: %w", err)
	}
	for _, p := range c.parts {
		p.posts, p.hours, p.placed = schema.Counts{}, schema.Counts{}, false
	}
	c.Report.Problems = []string{}
	return c.db.Snapshot(ctx, func(v *sql.Snapshot) error {
		rows, err := v.Positions(ctx)
		if err != nil {
			return err
		}
		phase := c.opts.Progress.Begin("copying MySQL", "rows", v.Rows(ctx))
		defer phase.End()
		page := c.ledger.newPage()
		defer page.close()
		any := false
		err = v.EachCount(ctx, func(row sql.PostCount) error {
			any = true
			phase.Add(1)
			return c.copyCount(page, row)
		})
		if err != nil {
			return err
		}
		err = v.EachHour(ctx, func(row sql.HourCount) error {
			any = true
			phase.Add(1)
			return c.copyHour(page, row)
		})
		if err != nil {
			return err
		}
		c.place(rows, any)
		return page.flush()
	})
}

func (c *Comparison) copyCount(page *page, row sql.PostCount) error {
	counts := schema.Counts{Likes: row.Likes, Dislikes: row.Dislikes}
	p := c.parts[schema.PartitionFor(row.PostID, c.Source.Partitions)]
	p.posts = plus(p.posts, counts)
	var suffix [8]byte
	binary.BigEndian.PutUint64(suffix[:], row.PostID)
	return page.set(mysqlCount, suffix[:], counts)
}

func (c *Comparison) copyHour(page *page, row sql.HourCount) error {
	counts := schema.Counts{Likes: row.Likes, Dislikes: row.Dislikes}
	if row.Partition < 0 || int(row.Partition) >= len(c.parts) {
		c.problem("like_hourly has a row of partition %d (%s, %s: %s), but like-updates has %d partitions",
			row.Partition, row.Hour.Format(time.DateTime), row.Region, shown(counts), len(c.parts))
		return nil
	}
	c.parts[row.Partition].hours = plus(c.parts[row.Partition].hours, counts)
	at := cell{Partition: row.Partition, Unix: row.Hour.Unix()}
	copy(at.Region[:], row.Region) // VARCHAR(6)
	return page.set(mysqlHour, appendCell(nil, at), counts)
}

// place finds each partition's position. counted: MySQL holds counts.
func (c *Comparison) place(rows []sql.StoredPosition, counted bool) {
	has := map[int32]bool{}
	for _, row := range rows {
		switch {
		case row.Topic != c.Source.Topic:
			c.problem("applied_offset has a row of topic %s, partition %d, which kudos does not know", row.Topic, row.Partition)
			continue
		case row.Partition < 0 || int(row.Partition) >= len(c.parts):
			c.problem("applied_offset has a row of partition %d, but like-updates has %d partitions", row.Partition, len(c.parts))
			continue
		}
		has[row.Partition] = true
		p := c.parts[row.Partition]
		p.applied = row.Position()
		if err := row.Of(c.Source); err != nil {
			c.problem("partition %d: %v", row.Partition, err)
			continue
		}
		p.placed = true
	}
	for _, p := range c.parts {
		switch {
		case has[p.id]:
		case len(has) == 0 && !counted: // nothing was ever applied: that is the start
			p.placed = true
		default:
			c.problem("applied_offset has no row for partition %d, though MySQL has counted: up to where is not known", p.id)
		}
	}
}
