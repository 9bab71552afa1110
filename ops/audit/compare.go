package audit

import (
	"context"
	"slices"

	"kudos/schema"
	"kudos/sql"
)

func (c *Comparison) compare(context.Context) error {
	c.checkLayouts()
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
		post, shard := decodeCount(suffix)
		owners := c.layout.PartitionsOf(post)
		var p *part // the first partition in that shard that owns the post
		for _, owner := range owners {
			if c.shardOf(owner) != shard {
				continue
			}
			if !c.parts[owner].placed {
				return nil
			}
			if p == nil {
				p = c.parts[owner]
			}
		}
		if p == nil { // the post has moved out of this shard, or never belonged here, which is reported separately
			p = c.parts[owners[0]]
			if !c.allPlaced(shard) {
				return nil
			}
		}
		c.Report.Posts.Compared++
		if pair, differ := pairOf(sums); differ {
			c.Report.Posts.found(PostRow{post, p.id, pair}, c.opts.Limit)
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
		c.Report.Hours.Compared++
		if pair, differ := pairOf(sums); differ {
			c.Report.Hours.found(HourRow{at.hour(), at.Region.String(), at.Partition, pair}, c.opts.Limit)
		}
		return nil
	}, mysqlHour, streamHour, laterHour)
}

// pairOf takes MySQL's counts, the stream's, and the part of the stream's that MySQL has not applied yet.
func pairOf(sums []schema.Counts) (pair Pair, differ bool) {
	have, want := sums[0], sums[1].Minus(sums[2])
	return Pair{have, want}, have != want || negative(have)
}

// negative counts are always wrong, whatever the stream says.
func negative(c schema.Counts) bool { return c.Likes < 0 || c.Dislikes < 0 }

// compareTotals checks what can be known about like_hourly without the state table: every reaction counted for a post
// is also counted in some hour. That holds per partition, unless a post is in several partitions or reactions have
// moved: then a reaction counted in rows of one partition may be subtracted in rows of another, in the same database.
func (c *Comparison) compareTotals() {
	const differ = "like_hourly adds up to %s, like_count to %s (likes / dislikes); " +
		"run `kudos audit --deep` to list the rows"
	if c.layouts == 0 && c.layout.UserBuckets() == "" {
		for _, p := range c.parts {
			if p.placed && p.posts != p.hours {
				c.problem("partition %d: "+differ, p.id, p.hours, p.posts)
			}
		}
		return
	}
	for _, store := range c.db.All() {
		var posts, hours schema.Counts
		for _, p := range c.parts {
			if c.db.Of(p.id) == store {
				posts, hours = posts.Plus(p.posts), hours.Plus(p.hours)
			}
		}
		if posts != hours && c.allPlaced(store.Shard().Index) {
			c.problem("MySQL at %s: "+differ, store, hours, posts)
		}
	}
}

func (c *Comparison) shardOf(partition int32) int32 { return c.db.Of(partition).Shard().Index }

func (c *Comparison) allPlaced(shard int32) bool {
	return !slices.ContainsFunc(c.parts, func(p *part) bool { return c.shardOf(p.id) == shard && !p.placed })
}

// cellOf is where like-count adds the deltas of a minute and region.
func (c *Comparison) cellOf(partition int32, minute int64, region schema.Region) cell {
	return cell{c.hoursOf(partition), minute / 60 * 3600, region}
}

// hoursOf is the partition under which the hours of a partition are compared; see cell.
func (c *Comparison) hoursOf(partition int32) int32 {
	if c.layouts == 0 {
		return partition
	}
	return c.shardOf(partition)
}

// State is the progress record of a partition in the state table, after a deep comparison; nil if there is none.
func (c *Comparison) State(partition int32) *schema.Progress { return c.parts[partition].progress }

// EachCount calls each with the recounted state of every post with a reaction, in order of post and shard.
func (c *Comparison) EachCount(each func(shard int32, d sql.CountDelta) error) error {
	return c.ledger.walk(func(suffix []byte, sums []schema.Counts) error {
		post, shard := decodeCount(suffix)
		return each(shard, sql.CountDelta{PostID: post, Likes: sums[0].Likes, Dislikes: sums[0].Dislikes})
	}, streamCount)
}

// EachHour calls each with the recounted hours, by partition and hour.
func (c *Comparison) EachHour(each func(partition int32, h sql.HourDelta) error) error {
	return c.ledger.walk(func(suffix []byte, sums []schema.Counts) error {
		at := decodeCell(suffix)
		return each(at.Partition, sql.HourDelta{Hour: at.Unix / 3600, Region: at.Region.String(),
			Likes: sums[0].Likes, Dislikes: sums[0].Dislikes})
	}, streamHour)
}
