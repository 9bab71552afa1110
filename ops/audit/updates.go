package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/progress"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// DecodeUpdate decodes a record of like-updates; post is 0 for a progress record.
func DecodeUpdate(rec *kgo.Record, u *schema.Update) (post uint64, err error) {
	err = schema.DecodeUpdate(rec.Value, u)
	if err == nil && string(rec.Key) != schema.ProgressKey {
		post, err = schema.ParsePostKey(rec.Key)
	}
	if err != nil {
		return 0, problemf("%s/%d offset %d: %v", schema.TopicUpdates, rec.Partition, rec.Offset, err)
	}
	return post, nil
}

// lastCounts stores each post's counts as of MySQL's position: those in the last update before it.
func (c *Comparison) lastCounts(ctx context.Context, p *part, phase *progress.Phase) error {
	start, end, err := kafka.Bounds(ctx, c.cl, schema.TopicUpdates, p.id)
	if err != nil {
		return err
	}
	if p.applied.NextOffset > end {
		return problemf("MySQL is at offset %d of %s/%d, which ends at %d",
			p.applied.NextOffset, schema.TopicUpdates, p.id, end)
	}
	if start > 0 {
		return unknownf("%s/%d starts at offset %d: earlier updates were deleted, "+
			"and with them the counts of posts that have not changed since", schema.TopicUpdates, p.id, start)
	}
	r := &lastReader{c: c, p: p, page: c.ledger.newPage()}
	defer r.page.close()
	began := time.Now()
	err = kafka.ReadLog(ctx, c.cl, schema.TopicUpdates, p.id, start, func(chunk kafka.LogChunk) (bool, error) {
		for _, rec := range chunk.Records {
			if more, err := r.read(rec); err != nil || !more {
				return false, err
			}
		}
		phase.Add(int64(len(chunk.Records)))
		// Read past the position too, for the next record's age and whether its transaction is the same; don't wait.
		if r.inside && chunk.Next >= chunk.End && time.Since(began) > visibleTimeout {
			return false, problemf("%s/%d ends with an incomplete transaction, which kudos never writes",
				schema.TopicUpdates, p.id)
		}
		return chunk.Next < end || r.inside, nil
	})
	if err == nil && !r.behind && r.nextSeq != p.applied.NextSeq {
		err = problemf("MySQL expects seq %d at offset %d of %s/%d, but the next update there will have seq %d",
			p.applied.NextSeq, p.applied.NextOffset, schema.TopicUpdates, p.id, r.nextSeq)
	}
	if err != nil {
		c.ledger.torn.Store(p.id, true)
		return err
	}
	return r.page.flush()
}

// lastReader reads the updates before MySQL's position, and as many after it as needed.
type lastReader struct {
	c    *Comparison
	p    *part
	page *page

	u schema.Update
	// of the last record before the position:
	nextSeq uint64 // sequence number after it
	post    uint64
	source  int64
	counts  schema.Counts
	inside  bool // its transaction continues after it

	behind bool // a record at or after the position was read
}

// read handles one record; more is false when no further one is needed.
func (r *lastReader) read(rec *kgo.Record) (more bool, err error) {
	post, err := DecodeUpdate(rec, &r.u)
	if err != nil {
		return false, err
	}
	if rec.Offset >= r.p.applied.NextOffset {
		return r.readBehind(rec, post)
	}
	r.nextSeq, r.post, r.source, r.counts, r.inside = r.u.Seq+1, post, r.u.SourceOffset, r.u.Counts, post != 0
	if post == 0 {
		r.p.layout = layout{r.u.Layouts(), r.u.Moved}
		return true, nil
	}
	return true, r.page.set(streamCount, appendCount(nil, post, r.c.shardOf(r.p.id)), r.p.id, r.u.Counts)
}

// readBehind handles a record at or after the position. A batch with very many regions and minutes of a post writes
// several records (schema.Update.Split). Earlier builds wrote the counts after the last of them into all: if MySQL's
// position is among such records, the rest is subtracted.
func (r *lastReader) readBehind(rec *kgo.Record, post uint64) (more bool, err error) {
	if !r.behind {
		r.behind = true
		if r.u.Seq != r.p.applied.NextSeq {
			return false, problemf("MySQL expects seq %d at offset %d of %s/%d, but the next record there has seq %d",
				r.p.applied.NextSeq, r.p.applied.NextOffset, schema.TopicUpdates, r.p.id, r.u.Seq)
		}
		if age := time.Since(rec.Timestamp); age > r.c.compactionLag {
			return false, unknownf("MySQL is %s behind %s/%d, which may be compacted after %s: "+
				"the counts at its position may be gone",
				age.Round(time.Second), schema.TopicUpdates, r.p.id, r.c.compactionLag)
		}
	}
	if post == 0 || !r.inside || post != r.post || r.u.SourceOffset != r.source || r.u.Counts != r.counts {
		r.inside = false
		return false, nil
	}
	return true, r.page.add(laterCount, appendCount(nil, post, r.c.shardOf(r.p.id)), r.p.id, schema.Sum(r.u.Deltas))
}

// layout is the layout that reactions were in or migrating to.
type layout struct {
	number    uint32
	migrating bool
}

// checkLayouts postpones comparing until all partitions have one layout: migrating reactions are in two or none.
func (c *Comparison) checkLayouts() {
	for _, p := range c.parts {
		if p.placed && p.layout != (layout{number: c.layouts}) {
			for _, p := range c.parts {
				p.placed = false
			}
			c.Report.Unknown = append(c.Report.Unknown, "reactions are being moved to other partitions "+
				"(`kudos topics repartition`), or MySQL has not applied all of the moves: "+
				"run this again when the repartition has finished and MySQL has caught up")
			return
		}
	}
}

// laterDeltas stores the changes of the updates between MySQL's position and the state table's, which MySQL lacks.
func (c *Comparison) laterDeltas(ctx context.Context, p *part, phase *progress.Phase) error {
	seq, to := p.applied.NextSeq, p.progress.NextSeq
	start, end, err := kafka.Bounds(ctx, c.cl, schema.TopicUpdates, p.id)
	if err != nil {
		return err
	}
	if p.applied.NextOffset < start || p.applied.NextOffset > end {
		return problemf("MySQL is at offset %d of %s/%d, which holds %d to %d",
			p.applied.NextOffset, schema.TopicUpdates, p.id, start, end)
	}
	page := c.ledger.newPage()
	defer page.close()
	var u schema.Update
	began, any := time.Now(), false
	read := func(chunk kafka.LogChunk) (bool, error) {
		for _, rec := range chunk.Records {
			post, err := DecodeUpdate(rec, &u)
			if err != nil {
				return false, err
			}
			if u.Seq != seq {
				return false, problemf("%s/%d offset %d has seq %d where MySQL expects %d",
					schema.TopicUpdates, p.id, rec.Offset, u.Seq, seq)
			}
			any = true
			if seq == to {
				return false, nil
			}
			seq++
			phase.Add(1)
			if post == 0 || u.Moved && c.db.Of(p.id) == c.db.Of(u.Other) {
				continue // like-count, too, skips moves within its database
			}
			if err := c.addLater(page, p.id, post, u.Deltas); err != nil {
				return false, err
			}
		}
		if seq < to && chunk.Next >= chunk.End && time.Since(began) > visibleTimeout {
			return false, problemf("%s/%d ends before seq %d, which the state table counts as published",
				schema.TopicUpdates, p.id, to-1)
		}
		return seq < to, nil
	}
	err = kafka.ReadLog(ctx, c.cl, schema.TopicUpdates, p.id, p.applied.NextOffset, read)
	if err == nil && !any {
		err = c.checkBefore(ctx, p, start)
	}
	if err != nil {
		return err
	}
	return page.flush()
}

func (c *Comparison) addLater(page *page, partition int32, post uint64, deltas []schema.Delta) error {
	err := page.add(laterCount, appendCount(nil, post, c.shardOf(partition)), partition, schema.Sum(deltas))
	if err != nil {
		return err
	}
	for _, d := range deltas {
		at := appendCell(nil, c.cellOf(partition, d.Minute, d.Region))
		if err := page.add(laterHour, at, partition, schema.Counts{Likes: d.Likes, Dislikes: d.Dislikes}); err != nil {
			return err
		}
	}
	return nil
}

// checkBefore compares seq with the records before the position if there are none after it.
func (c *Comparison) checkBefore(ctx context.Context, p *part, start int64) error {
	if p.applied.NextSeq == 0 || p.applied.NextOffset <= start {
		return nil
	}
	at, err := Locate(ctx, c.cl, p.id, p.applied.NextSeq)
	if err != nil {
		return err
	}
	if at.NextOffset > p.applied.NextOffset {
		return problemf("MySQL is at offset %d of %s/%d, before the update with seq %d that it records as applied",
			p.applied.NextOffset, schema.TopicUpdates, p.id, p.applied.NextSeq-1)
	}
	return nil
}

// Locate finds the position in like-updates after the update before seq, where a state with that next sequence number
// continues. It searches backward from the end, because the position is near it.
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
			return sql.Position{}, fmt.Errorf("%s/%d has no update with seq %d, "+
				"which the state table counts as published: like-updates has lost it; "+
				"stop the processors and run `kudos rebuild --updates`", schema.TopicUpdates, partition, seq-1)
		}
	}
}

func locateFrom(ctx context.Context, cl *kgo.Client, partition int32, from int64, seq uint64,
) (at sql.Position, found bool, err error) {
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
			return false, nil // the window starts after it
		}
		// It may still come: its transaction was visible in the state table first.
		return chunk.Next < chunk.End || time.Since(began) < visibleTimeout, nil
	})
	return at, found, err
}
