package audit

import (
	"context"
	"errors"
	"slices"

	"kudos/schema"
	"kudos/stream/kafka"
)

// recount works a partition's counts out from the pairs of the state table, and holds
// the table's own counts against them.
func (c *Comparison) recount(ctx context.Context, p *part, phase *Phase) (err error) {
	id := kafka.LogID{ClusterID: c.topics.ClusterID, TopicID: c.topics.ByName[schema.TopicState].ID}
	table, err := NewTable(c.dir, p.id, id, c.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	seq := uint64(0)
	if p.placed {
		seq = p.applied.NextSeq
	}
	if err := table.Read(ctx, c.cl, seq, phase.Add); err != nil {
		return err
	}
	p.progress, p.hasProgress = table.Progress, table.HasProgress
	p.layout = layout{table.Progress.Layouts, table.Progress.Moving}
	if err := c.sumUp(table, p); err != nil {
		return err
	}
	switch {
	case !table.HasProgress:
		return discordf("partition %d of the state table has no progress record; run `kudos topics apply`, which says what is the matter", p.id)
	case table.Progress.UpdatesID != c.Source.TopicID:
		return discordf("the state table of partition %d belongs to another like-updates than is there now: stop the processors and run `kudos rebuild --updates`", p.id)
	case p.placed && table.Progress.NextSeq < seq:
		return discordf("MySQL has applied %s/%d up to seq %d, but the state table stands at %d: it was lost or went back", schema.TopicUpdates, p.id, seq, table.Progress.NextSeq)
	}
	return nil
}

func (c *Comparison) sumUp(table *Table, p *part) error {
	page := c.ledger.newPage()
	defer page.close()
	hours := newTally(page, streamHour)
	var suffix []byte
	err := table.EachPost(
		func(post uint64, pair *schema.Pair) error {
			return hours.add(c.cellOf(p.id, schema.MinuteOf(pair.SinceMs), pair.Region), One(pair.Reaction))
		},
		func(post Post) error {
			c.checkPost(p, post)
			if post.Counted == (schema.Counts{}) {
				return nil
			}
			suffix = appendCount(suffix[:0], post.ID, c.shardOf(p.id))
			return page.add(streamCount, suffix, post.Counted)
		})
	if err != nil {
		return err
	}
	return hours.flush()
}

// checkPost holds a post's own record against its pairs.
func (c *Comparison) checkPost(p *part, post Post) {
	homes := c.layout.Homes(post.ID)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Report.State.Compared++
	if post.Stored != post.Counted {
		c.Report.State.found(StateRow{post.ID, p.id, shown(post.Stored), shown(post.Counted)}, c.opts.Limit)
	}
	if !slices.Contains(homes, p.id) {
		c.Report.Problems = append(c.Report.Problems, discordf("partition %d of the state table has post %d, whose partition is %d", p.id, post.ID, homes[0]).Error())
	}
}
