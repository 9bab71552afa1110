package audit

import (
	"slices"

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
		post, shard := decodeCount(suffix)
		var p *part // the first of those at the shard that the post is in
		for _, home := range c.layout.Homes(post) {
			if c.shardOf(home) != shard {
				continue
			}
			if !c.parts[home].placed {
				return nil
			}
			if p == nil {
				p = c.parts[home]
			}
		}
		if p == nil { // it has moved away from here, or never belonged here, which is told otherwise
			p = c.parts[c.layout.Homes(post)[0]]
			if !c.allPlaced(shard) {
				return nil
			}
		}
		s := &c.Report.Posts
		s.Compared++
		have, want := sums[0], sums[1].Minus(sums[2])
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
		have, want := sums[0], sums[1].Minus(sums[2])
		if have != want || negative(have) {
			s.found(HourRow{at.hour(), at.Region.String(), at.Partition, Pair{shown(have), shown(want)}}, c.opts.Limit)
		}
		return nil
	}, mysqlHour, streamHour, laterHour)
}

// compareTotals is what can be said of like_hourly without the state table: each
// reaction that counts for a post counts in some hour.
func (c *Comparison) compareTotals() {
	if c.layouts > 0 || c.layout.UserBuckets() != "" {
		c.compareTotalsOfShards()
		return
	}
	for _, p := range c.parts {
		if p.placed && p.posts != p.hours {
			c.problem("partition %d: like_hourly comes to %s in all, like_count to %s (likes / dislikes); `kudos audit --deep` names the rows", p.id, shown(p.hours), shown(p.posts))
		}
	}
}

// shardOf is the shard that counts a partition.
func (c *Comparison) shardOf(partition int32) int32 { return c.db.Of(partition).Shard().Index }

// allPlaced tells whether there is something to compare with for all partitions of a shard.
func (c *Comparison) allPlaced(shard int32) bool {
	return !slices.ContainsFunc(c.parts, func(p *part) bool { return c.shardOf(p.id) == shard && !p.placed })
}

// compareTotalsOfShards is compareTotals where a post is in several partitions, and where reactions have moved: what was counted in one partition may be taken back
// in another one's rows, but of the same database.
func (c *Comparison) compareTotalsOfShards() {
	for _, store := range c.db.All() {
		var posts, hours schema.Counts
		placed := true
		for _, p := range c.parts {
			if c.db.Of(p.id) == store {
				placed = placed && p.placed
				posts, hours = posts.Plus(p.posts), hours.Plus(p.hours)
			}
		}
		if placed && posts != hours {
			c.problem("MySQL at %s: like_hourly comes to %s in all, like_count to %s (likes / dislikes); `kudos audit --deep` names the rows", store, shown(hours), shown(posts))
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
// order, and the shard that this belongs to; posts without any reaction are left out.
func (c *Comparison) EachCount(each func(shard int32, d sql.CountDelta) error) error {
	return c.ledger.walk(func(suffix []byte, sums []schema.Counts) error {
		post, shard := decodeCount(suffix)
		return each(shard, sql.CountDelta{PostID: post, Likes: sums[0].Likes, Dislikes: sums[0].Dislikes})
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
