package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/progress"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// Table is a temporary copy of one partition of the state table.
type Table struct {
	*store.Store
	Progress *schema.Progress // the partition's progress record, or nil

	partition int32
	dir       string
	stores    *store.Set
}

const tableCacheBytes, tableBufferBytes = 8 << 20, 16 << 20 // a copy's block cache and write buffer: it is read once

// NewTable creates an empty copy in a directory below dir. Close removes it.
func NewTable(dir string, partition int32, log *slog.Logger) (_ *Table, err error) {
	t := &Table{partition: partition}
	if t.dir, err = os.MkdirTemp(dir, "kudos-state-"); err != nil {
		return nil, fmt.Errorf("creating a directory for a copy of the state table: %w", err)
	}
	t.stores = store.NewSet(filepath.Join(t.dir, "state"), tableCacheBytes, log)
	t.stores.BufferBytes = tableBufferBytes
	t.Store = t.stores.New(schema.TopicState, partition)
	if err := t.Open(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Close removes the copy.
func (t *Table) Close() error {
	err := t.Store.Close()
	t.stores.Close()
	return errors.Join(err, os.RemoveAll(t.dir))
}

// visibleTimeout bounds how long a transaction may be visible in one topic but not yet in the other: each topic gets
// its markers in its own time. Tests of markers that never come use a shorter timeout.
var visibleTimeout = 30 * time.Second

// Read copies the log until a fetch ends at its last stable offset: records removed by compaction have a newer record
// before that. It continues until the table covers the updates below seq; MySQL has applied those, but they may become
// visible here later. If that takes long, Progress shows how far the table got. read gets the number of offsets read.
func (t *Table) Read(ctx context.Context, cl *kgo.Client, seq uint64, read func(offsets int64)) error {
	next, _, err := kafka.Bounds(ctx, cl, schema.TopicState, t.partition)
	if err != nil {
		return err
	}
	var reached time.Time
	return kafka.ReadLog(ctx, cl, schema.TopicState, t.partition, next, func(c kafka.LogChunk) (bool, error) {
		if c.Next > next {
			if err := t.Replay(c.Records, c.Next-1); err != nil {
				return false, err
			}
			read(c.Next - next)
			next = c.Next
		}
		if c.Next < c.End {
			return true, nil
		}
		progress, ok, err := table.ReadProgress(t.Store)
		if err != nil {
			return false, fmt.Errorf("partition %d: %w", t.partition, err)
		}
		if ok {
			t.Progress = &progress
		}
		if reached.IsZero() {
			reached = time.Now()
		}
		return progress.NextSeq < seq && time.Since(reached) < visibleTimeout, nil
	})
}

// Post has a post's stored counts in the state table and the sum of its pairs. They are equal unless it is damaged.
type Post struct {
	ID              uint64
	Stored, Counted schema.Counts
}

// EachPost scans the table in post order. For each it calls pair, unless nil, for each pair that counts, then post.
func (t *Table) EachPost(pair func(post uint64, p *schema.Pair) error, post func(Post) error) error {
	var now Post // the current post; id 0 means none yet
	turn := func(id uint64) error {
		before := now
		if id == before.ID {
			return nil
		}
		now = Post{ID: id}
		if before.ID == 0 {
			return nil
		}
		return post(before)
	}
	err := store.Scan(t.Store, nil, nil, func(key, value []byte) (more bool, err error) {
		if id, ok := schema.ParseCountsKey(key); ok {
			if err := turn(id); err != nil {
				return false, err
			}
			if now.Stored, err = schema.DecodeCounts(value); err != nil {
				return false, fmt.Errorf("post %d: %w", id, err)
			}
			return true, nil
		}
		id, user, ok := schema.ParsePairKey(key)
		if !ok {
			return true, nil // a record of the program itself
		}
		var p schema.Pair
		if err := schema.DecodePair(value, &p); err != nil {
			return false, fmt.Errorf("post %d, user %d: %w", id, user, err)
		}
		if err := turn(id); err != nil {
			return false, err
		}
		now.Counted = now.Counted.Plus(p.Counts())
		if pair != nil && p.Counts() != (schema.Counts{}) {
			err = pair(id, &p)
		}
		return true, err
	})
	if err != nil {
		return err
	}
	return turn(0)
}

// Cells are counts of pairs by the minute and region in which they count.
type Cells map[minuteRegion]schema.Counts

type minuteRegion struct {
	minute int64
	region schema.Region
}

// Add adds one pair.
func (c Cells) Add(p *schema.Pair) {
	if one := p.Counts(); one != (schema.Counts{}) {
		at := minuteRegion{schema.MinuteOf(p.SinceMs), p.Region}
		c[at] = c[at].Plus(one)
	}
}

// Sum is the sum of all cells.
func (c Cells) Sum() (sum schema.Counts) {
	for _, n := range c {
		sum = sum.Plus(n)
	}
	return sum
}

// Deltas are the cells times sign, in the order in which the fold writes deltas.
func (c Cells) Deltas(sign int64) []schema.Delta {
	deltas := make([]schema.Delta, 0, len(c))
	for at, n := range c {
		deltas = append(deltas, schema.Delta{Region: at.region, Minute: at.minute,
			Likes: sign * n.Likes, Dislikes: sign * n.Dislikes})
	}
	slices.SortFunc(deltas, func(a, b schema.Delta) int {
		return cmp.Or(cmp.Compare(a.Minute, b.Minute), slices.Compare(a.Region[:], b.Region[:]))
	})
	return deltas
}

// recount counts the pairs of a partition of the state table, and compares them with the counts stored there.
func (c *Comparison) recount(ctx context.Context, p *part, phase *progress.Phase) (err error) {
	table, err := NewTable(c.dir, p.id, c.log)
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
	if err := c.sumUp(table, p); err != nil {
		return err
	}
	if p.progress = table.Progress; p.progress != nil {
		p.layout = layout{p.progress.Layouts, p.progress.Migrating}
	}
	switch {
	case p.progress == nil:
		return problemf("partition %d of the state table has no progress record; "+
			"run `kudos topics apply`, which reports what is wrong", p.id)
	case p.progress.UpdatesID != c.Source.TopicID:
		return problemf("the state table of partition %d belongs to a like-updates topic that is not the current one: "+
			"stop the processors and run `kudos rebuild --updates`", p.id)
	case p.placed && p.progress.NextSeq < seq:
		return problemf("MySQL has applied %s/%d up to seq %d, but the state table is at %d: "+
			"it was lost or rewound", schema.TopicUpdates, p.id, seq, p.progress.NextSeq)
	}
	return nil
}

func (c *Comparison) sumUp(table *Table, p *part) error {
	page := c.ledger.newPage()
	defer page.close()
	var suffix []byte
	err := table.EachPost(
		func(post uint64, pair *schema.Pair) error {
			suffix = appendCell(suffix[:0], c.cellOf(p.id, schema.MinuteOf(pair.SinceMs), pair.Region))
			return page.add(streamHour, suffix, p.id, pair.Reaction.Counts())
		},
		func(post Post) error {
			c.checkPost(p, post)
			suffix = appendCount(suffix[:0], post.ID, c.shardOf(p.id))
			return page.add(streamCount, suffix, p.id, post.Counted)
		})
	if err != nil {
		return err
	}
	return page.flush()
}

func (c *Comparison) checkPost(p *part, post Post) {
	if owners := c.layout.PartitionsOf(post.ID); !slices.Contains(owners, p.id) {
		c.problem("partition %d of the state table has post %d, whose partition is %d", p.id, post.ID, owners[0])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Report.State.Compared++
	if post.Stored != post.Counted {
		c.Report.State.found(StateRow{post.ID, p.id, post.Stored, post.Counted}, c.opts.Limit)
	}
}
