package audit

import (
	"encoding/binary"

	"kudos/schema"
	"kudos/sql"
)

// compare goes through what was laid down, and notes what differs.
func (c *Comparison) compare() error {
	if err := c.comparePosts(); err != nil {
		return err
	}
	if c.opts.Deep {
		return c.compareHours()
	}
	c.compareTotals()
	return nil
}

func (c *Comparison) comparePosts() error {
	return c.ledger.walk(func(suffix []byte, sums []schema.Counts) error {
		post := binary.BigEndian.Uint64(suffix)
		p := c.parts[schema.PartitionFor(post, c.Source.Partitions)]
		if !p.placed {
			return nil
		}
		s := &c.Report.Posts
		s.Compared++
		have, want := sums[0], minus(sums[1], sums[2])
		if have != want || negative(have) {
			s.found(PostRow{post, p.id, Pair{shown(have), shown(want)}}, c.opts.Limit)
		}
		return nil
	}, mysqlCount, streamCount, laterCount)
}

func (c *Comparison) compareHours() error {
	return c.ledger.walk(func(suffix []byte, sums []schema.Counts) error {
		at := decodeCell(suffix)
		if !c.parts[at.Partition].placed {
			return nil
		}
		s := &c.Report.Hours
		s.Compared++
		have, want := sums[0], minus(sums[1], sums[2])
		if have != want || negative(have) {
			s.found(HourRow{at.hour(), at.Region.String(), at.Partition, Pair{shown(have), shown(want)}}, c.opts.Limit)
		}
		return nil
	}, mysqlHour, streamHour, laterHour)
}

// compareTotals is what can be said of like_hourly without the state table: each
// reaction that counts for a post counts in some hour.
func (c *Comparison) compareTotals() {
	for _, p := range c.parts {
		if p.placed && p.posts != p.hours {
			c.problem("partition %d: like_hourly comes to %s in all, like_count to %s (likes / dislikes); `kudos audit --deep` names the rows", p.id, shown(p.hours), shown(p.posts))
		}
	}
}

// negative: no count can be, whatever the stream says.
func negative(c schema.Counts) bool { return c.Likes < 0 || c.Dislikes < 0 }

// State is the progress record of a partition's state table, after a deep comparison;
// ok is false if it has none.
func (c *Comparison) State(partition int32) (p schema.Progress, ok bool) {
	return c.parts[partition].progress, c.parts[partition].hasProgress
}

// EachCount calls each with what the state table came to, post by post in their
// order; posts without any reaction are left out.
func (c *Comparison) EachCount(each func(sql.CountDelta) error) error {
	return c.ledger.walk(func(suffix []byte, sums []schema.Counts) error {
		return each(sql.CountDelta{PostID: binary.BigEndian.Uint64(suffix), Likes: sums[0].Likes, Dislikes: sums[0].Dislikes})
	}, streamCount)
}

// EachHour calls each with what the state table came to, partition by partition, hour
// by hour.
func (c *Comparison) EachHour(each func(partition int32, h sql.HourDelta) error) error {
	return c.ledger.walk(func(suffix []byte, sums []schema.Counts) error {
		at := decodeCell(suffix)
		return each(at.Partition, sql.HourDelta{Hour: at.Unix / 3600, Region: at.Region.String(), Likes: sums[0].Likes, Dislikes: sums[0].Dislikes})
	}, streamHour)
}
