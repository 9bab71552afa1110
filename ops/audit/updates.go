package audit

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// discord is what keeps a partition from being compared: MySQL's position and the log
// do not belong together. It is a finding and not a failure.
type discord string

func (d discord) Error() string { return string(d) }

func discordf(format string, args ...any) error { return discord(fmt.Sprintf(format, args...)) }

// unknowable is what keeps the counts at a position from being known: the log does not
// have them any more. It is neither a difference nor none.
type unknowable string

func (u unknowable) Error() string { return string(u) }

// lastCounts lays down each post's counts as of MySQL's position: those that its last
// update before it carries.
func (c *Comparison) lastCounts(ctx context.Context, p *part, phase *Phase) error {
	start, end, err := kafka.Bounds(ctx, c.cl, schema.TopicUpdates, p.id)
	if err != nil {
		return err
	}
	if p.applied.NextOffset > end {
		return discordf("MySQL stands at offset %d of %s/%d, which ends at %d", p.applied.NextOffset, schema.TopicUpdates, p.id, end)
	}
	if start > 0 {
		return unknowable(fmt.Sprintf("%s/%d begins at offset %d: what was before has been deleted, and with it the counts of posts that have not changed since", schema.TopicUpdates, p.id, start))
	}
	r := &lastReader{c: c, p: p, page: c.ledger.newPage(), end: end}
	defer r.page.close()
	began := time.Now()
	err = kafka.ReadLog(ctx, c.cl, schema.TopicUpdates, p.id, start, func(chunk kafka.LogChunk) (bool, error) {
		for _, rec := range chunk.Records {
			if more, err := r.read(rec); err != nil || !more {
				return false, err
			}
		}
		phase.Add(int64(len(chunk.Records)))
		// What lies behind the position is looked at, too: how old it is, and whether
		// it is of the same transaction. But not waited for.
		if r.inside() && chunk.Next >= chunk.End && time.Since(began) > visibleTimeout {
			return false, discordf("%s/%d ends within a transaction, which kudos does not write", schema.TopicUpdates, p.id)
		}
		return chunk.Next < r.end || r.inside(), nil
	})
	if err == nil {
		err = r.finish()
	}
	if err != nil {
		return err
	}
	p.layout = r.layout
	if err := r.page.flush(); err != nil {
		return err
	}
	if err := c.ledger.sumUp(lastCount, p.id, c.shardOf(p.id), r.page, streamCount); err != nil {
		return err
	}
	return r.page.flush()
}

// layout is which one reactions were in, or on their way to.
type layout struct {
	number uint32
	moving bool
}

// checkLayouts leaves the comparison to later where partitions are not all of one layout: a reaction that is on its way
// from one to another would be in both, or in none.
func (c *Comparison) checkLayouts() {
	first, of := layout{}, (*part)(nil)
	for _, p := range c.parts {
		if !p.placed {
			continue
		}
		if of == nil {
			first, of = p.layout, p
		}
		if p.layout.moving || p.layout != first || p.layout.number != c.layouts {
			for _, p := range c.parts {
				p.placed = false
			}
			c.Report.Unknown = append(c.Report.Unknown, "reactions are on their way to other partitions (`kudos topics repartition`), or MySQL has not come to where they had arrived: run this again when that has ended, and MySQL is not behind")
			return
		}
	}
}

// lastReader reads the updates before MySQL's position, and of those behind it as many
// as it takes.
type lastReader struct {
	c    *Comparison
	p    *part
	page *page
	end  int64

	u      schema.Update
	suffix []byte
	any    bool
	// last is the last record before the position.
	last struct {
		seq    uint64
		post   uint64
		source int64
		inside bool // its transaction goes on behind it
	}
	behind bool // a record behind the position was seen
	layout layout
}

// read takes a record; more is false when no other is needed.
func (r *lastReader) read(rec *kgo.Record) (more bool, err error) {
	if err := schema.DecodeUpdate(rec.Value, &r.u); err != nil {
		return false, discordf("%s/%d offset %d: %v", schema.TopicUpdates, r.p.id, rec.Offset, err)
	}
	isProgress := string(rec.Key) == schema.ProgressKey
	var post uint64
	if !isProgress {
		if post, err = schema.ParsePostKey(rec.Key); err != nil {
			return false, discordf("%s/%d offset %d: %v", schema.TopicUpdates, r.p.id, rec.Offset, err)
		}
	}
	if rec.Offset >= r.p.applied.NextOffset {
		return r.readBehind(rec, post, isProgress)
	}
	r.any = true
	r.last.seq, r.last.post, r.last.source, r.last.inside = r.u.Seq, post, r.u.SourceOffset, !isProgress
	if isProgress {
		r.layout = layout{r.u.Layouts(), r.u.Moved}
		return true, nil
	}
	r.suffix = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(r.suffix[:0], uint32(r.p.id)), post)
	return true, r.page.set(lastCount, r.suffix, r.u.Counts)
}

func (r *lastReader) postKey(post uint64) []byte {
	r.suffix = appendCount(r.suffix[:0], post, r.c.shardOf(r.p.id))
	return r.suffix
}

// readBehind takes a record at or behind the position. A batch that changed a post in
// very many regions and minutes has more than one record of it, each with the counts
// after them all; if MySQL stands between those, the rest has to be taken off.
func (r *lastReader) readBehind(rec *kgo.Record, post uint64, isProgress bool) (more bool, err error) {
	if !r.behind {
		r.behind = true
		if r.u.Seq != r.p.applied.NextSeq {
			return false, discordf("MySQL expects seq %d at offset %d of %s/%d, but the next record there has seq %d", r.p.applied.NextSeq, r.p.applied.NextOffset, schema.TopicUpdates, r.p.id, r.u.Seq)
		}
		if age := time.Since(rec.Timestamp); age > r.c.compactionLag {
			return false, unknowable(fmt.Sprintf("MySQL is %s behind %s/%d, which may be compacted after %s: the counts at its position may be gone", age.Round(time.Second), schema.TopicUpdates, r.p.id, r.c.compactionLag))
		}
	}
	if isProgress || !r.last.inside || post != r.last.post || r.u.SourceOffset != r.last.source {
		r.last.inside = false
		return false, nil
	}
	return true, r.page.add(laterCount, r.postKey(post), sumOf(r.u.Deltas))
}

// inside tells whether the record before the position, or the last one that was read,
// has its transaction go on: then more is there to be read.
func (r *lastReader) inside() bool { return r.any && r.last.inside }

// finish holds seq against the last record, where nothing is behind the position.
func (r *lastReader) finish() error {
	if r.behind {
		return nil
	}
	next := uint64(0)
	if r.any {
		next = r.last.seq + 1
	}
	if next != r.p.applied.NextSeq {
		return discordf("MySQL expects seq %d at offset %d of %s/%d, which ends before with seq %d to come", r.p.applied.NextSeq, r.p.applied.NextOffset, schema.TopicUpdates, r.p.id, next)
	}
	return nil
}

func sumOf(deltas []schema.Delta) (c schema.Counts) {
	for _, d := range deltas {
		c.Likes += d.Likes
		c.Dislikes += d.Dislikes
	}
	return c
}

// laterDeltas lays down what the updates from MySQL's position up to the state table's
// have changed: the state table has it, MySQL has not.
func (c *Comparison) laterDeltas(ctx context.Context, p *part, phase *Phase) error {
	seq, to := p.applied.NextSeq, p.progress.NextSeq
	start, end, err := kafka.Bounds(ctx, c.cl, schema.TopicUpdates, p.id)
	if err != nil {
		return err
	}
	if p.applied.NextOffset < start || p.applied.NextOffset > end {
		return discordf("MySQL stands at offset %d of %s/%d, which holds %d to %d", p.applied.NextOffset, schema.TopicUpdates, p.id, start, end)
	}
	page := c.ledger.newPage()
	defer page.close()
	hours := newTally(page, laterHour)
	var u schema.Update
	var suffix []byte
	began, any := time.Now(), false
	err = kafka.ReadLog(ctx, c.cl, schema.TopicUpdates, p.id, p.applied.NextOffset, func(chunk kafka.LogChunk) (bool, error) {
		for _, rec := range chunk.Records {
			if err := schema.DecodeUpdate(rec.Value, &u); err != nil {
				return false, discordf("%s/%d offset %d: %v", schema.TopicUpdates, p.id, rec.Offset, err)
			}
			if u.Seq != seq {
				return false, discordf("%s/%d offset %d has seq %d where MySQL expects %d", schema.TopicUpdates, p.id, rec.Offset, u.Seq, seq)
			}
			any = true
			if seq == to {
				return false, nil
			}
			seq++
			phase.Add(1)
			if string(rec.Key) == schema.ProgressKey {
				continue
			}
			post, err := schema.ParsePostKey(rec.Key)
			if err != nil {
				return false, discordf("%s/%d offset %d: %v", schema.TopicUpdates, p.id, rec.Offset, err)
			}
			if u.Moved && c.db.Of(p.id) == c.db.Of(u.Other) {
				continue // like-count passes it over, too
			}
			suffix = appendCount(suffix[:0], post, c.shardOf(p.id))
			if err := page.add(laterCount, suffix, sumOf(u.Deltas)); err != nil {
				return false, err
			}
			for _, d := range u.Deltas {
				if err := hours.add(c.cellOf(p.id, d.Minute, d.Region), schema.Counts{Likes: d.Likes, Dislikes: d.Dislikes}); err != nil {
					return false, err
				}
			}
		}
		if seq < to && chunk.Next >= chunk.End && time.Since(began) > visibleTimeout {
			return false, discordf("%s/%d ends before seq %d, which the state table counts as published", schema.TopicUpdates, p.id, to-1)
		}
		return seq < to, nil
	})
	if err == nil && !any {
		err = c.checkBefore(ctx, p, start)
	}
	if err != nil {
		return err
	}
	return hours.flush()
}

// checkBefore holds seq against the records before the position, where none is behind
// it that would tell.
func (c *Comparison) checkBefore(ctx context.Context, p *part, start int64) error {
	if p.applied.NextSeq == 0 || p.applied.NextOffset <= start {
		return nil
	}
	at, err := Locate(ctx, c.cl, p.id, p.applied.NextSeq)
	if err != nil {
		return err
	}
	if at.NextOffset > p.applied.NextOffset {
		return discordf("MySQL stands at offset %d of %s/%d, before the update with seq %d that it says to have applied", p.applied.NextOffset, schema.TopicUpdates, p.id, p.applied.NextSeq-1)
	}
	return nil
}

// Locate finds the position in like-updates right behind the update before seq: where
// a state that comes to that seq goes on. It reads backwards from the end, since that
// is where it is.
func Locate(ctx context.Context, cl *kgo.Client, partition int32, seq uint64) (sql.Position, error) {
	start, end, err := kafka.Bounds(ctx, cl, schema.TopicUpdates, partition)
	if err != nil {
		return sql.Position{}, err
	}
	if seq == 0 {
		return sql.Position{NextOffset: start, LeaderEpoch: -1}, nil
	}
	for window := int64(1 << 10); ; window *= 16 {
		from := max(start, end-window)
		at, found, err := locateFrom(ctx, cl, partition, from, seq)
		if err != nil || found {
			return at, err
		}
		if from == start {
			return sql.Position{}, fmt.Errorf("%s/%d has no update with seq %d, which the state table counts as published: like-updates has lost it; stop the processors and run `kudos rebuild --updates`", schema.TopicUpdates, partition, seq-1)
		}
	}
}

func locateFrom(ctx context.Context, cl *kgo.Client, partition int32, from int64, seq uint64) (at sql.Position, found bool, err error) {
	began := time.Now()
	before, first := false, true
	var u schema.Update
	err = kafka.ReadLog(ctx, cl, schema.TopicUpdates, partition, from, func(chunk kafka.LogChunk) (bool, error) {
		for _, rec := range chunk.Records {
			if err := schema.DecodeUpdate(rec.Value, &u); err != nil {
				return false, fmt.Errorf("%s/%d offset %d: %w", schema.TopicUpdates, partition, rec.Offset, err)
			}
			if u.Seq == seq-1 {
				at, found = sql.Position{NextOffset: rec.Offset + 1, NextSeq: seq, LeaderEpoch: rec.LeaderEpoch}, true
				return false, nil
			}
			if first {
				before, first = u.Seq < seq, false
			}
		}
		if !before && !first {
			return false, nil // the window begins behind it
		}
		// It may come yet: its transaction was seen in the state table first.
		return chunk.Next < chunk.End || time.Since(began) < visibleTimeout, nil
	})
	return at, found, err
}
