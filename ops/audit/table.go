package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// Table is a temporary copy of one partition of the state table.
type Table struct {
	*store.Store
	// Progress is the partition's progress record; HasProgress is false without one.
	Progress    schema.Progress
	HasProgress bool

	partition int32
	dir       string
	stores    *store.Set
}

// tableCacheBytes is the block cache of a temporary copy: it is read once, in order.
const tableCacheBytes = 8 << 20

// tableBufferBytes of a copy are held in memory before they go to disk.
const tableBufferBytes = 16 << 20

// NewTable makes an empty copy below dir. Close removes it.
func NewTable(dir string, partition int32, id kafka.LogID, log *slog.Logger) (*Table, error) {
	t := &Table{partition: partition}
	var err error
	if t.dir, err = os.MkdirTemp(dir, "state-"); err != nil {
		return nil, fmt.Errorf("folder for a copy of the state table: %w", err)
	}
	t.stores = store.NewSet(filepath.Join(t.dir, "state"), tableCacheBytes, log)
	t.stores.BufferBytes = tableBufferBytes
	t.Store = t.stores.New(id, schema.TopicState, partition)
	if err := t.Store.Open(); err != nil {
		t.Store = nil
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// Close removes the copy.
func (t *Table) Close() error {
	var err error
	if t.Store != nil {
		err = t.Store.Close()
	}
	t.stores.Close()
	return errors.Join(err, os.RemoveAll(t.dir))
}

// visibleTimeout is how long a transaction may be seen in one topic and not yet in the
// other: its markers come to each in their own time. Tests of what never comes have less.
var visibleTimeout = 30 * time.Second

// Read copies the log up to a fetch that ends at its own last stable offset: whatever
// compaction has taken has a newer record before that. It reads on until the table
// covers at least the updates below seq (what MySQL has applied is in it, but may be
// seen later); if it does not come to that in time, Progress tells where it stands.
// read is told of the offsets read.
func (t *Table) Read(ctx context.Context, cl *kgo.Client, seq uint64, read func(offsets int64)) error {
	next, _, err := kafka.Bounds(ctx, cl, schema.TopicState, t.partition)
	if err != nil {
		return err
	}
	var reached time.Time
	return kafka.ReadLog(ctx, cl, schema.TopicState, t.partition, next, func(c kafka.LogChunk) (bool, error) {
		if c.Next > next {
			if err := t.keep(c); err != nil {
				return false, err
			}
			read(c.Next - next)
			next = c.Next
		}
		if c.Next < c.End {
			return true, nil
		}
		if err := t.loadProgress(); err != nil {
			return false, err
		}
		if reached.IsZero() {
			reached = time.Now()
		}
		return t.Progress.NextSeq < seq && time.Since(reached) < visibleTimeout, nil
	})
}

func (t *Table) keep(c kafka.LogChunk) error {
	w := t.NewWrite()
	for _, rec := range c.Records {
		if err := w.Set(rec.Key, rec.Value); err != nil {
			w.Discard()
			return fmt.Errorf("copying %s/%d: %w", schema.TopicState, t.partition, err)
		}
	}
	return w.Commit(c.Next - 1)
}

func (t *Table) loadProgress() error {
	value, err := t.Get(schema.StateProgressKey)
	if err != nil || value == nil {
		return err
	}
	t.HasProgress = true
	if err := schema.DecodeProgress(value, &t.Progress); err != nil {
		return fmt.Errorf("partition %d: %w", t.partition, err)
	}
	return nil
}

// Post is what the state table says of a post: its own record of the counts, and what
// its pairs come to. They are the same unless something is wrong.
type Post struct {
	ID              uint64
	Stored, Counted schema.Counts
}

// EachPost goes through the table in the order of posts: pair is called for each pair
// of a post that has a reaction, and then post. pair may be nil.
func (t *Table) EachPost(pair func(post uint64, p *schema.Pair) error, post func(Post) error) error {
	it, err := t.Iterator()
	if err != nil {
		return err
	}
	defer it.Release()
	var now Post
	open := false
	turn := func(id uint64) error {
		if open && now.ID == id {
			return nil
		}
		var err error
		if open {
			err = post(now)
		}
		open, now = true, Post{ID: id}
		return err
	}
	for it.Next() {
		value, err := it.Value()
		if err != nil {
			return fmt.Errorf("reading %s/%d: %w", schema.TopicState, t.partition, err)
		}
		if id, ok := schema.ParseCountsKey(it.Key()); ok {
			if err := turn(id); err != nil {
				return err
			}
			if now.Stored, err = schema.DecodeCounts(value); err != nil {
				return fmt.Errorf("post %d: %w", id, err)
			}
			continue
		}
		id, user, ok := schema.ParsePairKey(it.Key())
		if !ok {
			continue // the program's own
		}
		var p schema.Pair
		if err := schema.DecodePair(value, &p); err != nil {
			return fmt.Errorf("post %d, user %d: %w", id, user, err)
		}
		if err := turn(id); err != nil {
			return err
		}
		now.Counted = now.Counted.Plus(One(p.Reaction))
		if pair == nil || p.Reaction == schema.NoReaction {
			continue
		}
		if err := pair(id, &p); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("reading %s/%d: %w", schema.TopicState, t.partition, err)
	}
	if open {
		return post(now)
	}
	return nil
}

// One is what a single pair with this reaction counts.
func One(r schema.Reaction) schema.Counts {
	switch r {
	case schema.Liked:
		return schema.Counts{Likes: 1}
	case schema.Disliked:
		return schema.Counts{Dislikes: 1}
	}
	return schema.Counts{}
}
