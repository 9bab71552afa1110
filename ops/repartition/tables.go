package repartition

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"kudos/schema"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// tables is a temporary copy of the state table, partition by partition. It is on disk: what is in memory does not grow
// with the table.
type tables struct {
	dir    string
	stores *store.Set
	list   []*store.Store
}

// copyMemtableBytes is what a partition's copy may hold in memory.
const copyMemtableBytes = 4 << 20

// openTables copies the table as it is committed now.
func (r *Repartition) openTables(ctx context.Context, partitions int32) (_ *tables, err error) {
	t := &tables{}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	if t.dir, err = os.MkdirTemp(r.opts.TempDir, "kudos-repartition-"); err != nil {
		return nil, fmt.Errorf("folder for a copy of the state table: %w", err)
	}
	t.stores = store.NewSet(filepath.Join(t.dir, "state"), r.opts.CacheBytes, r.log)
	t.stores.MemtableBytes = copyMemtableBytes
	id := kafka.LogID{ClusterID: r.topics.ClusterID, TopicID: r.topics.ByName[schema.TopicState].ID}
	for p := range partitions {
		store := t.stores.New(id, schema.TopicState, p)
		if err := store.Open(); err != nil {
			return nil, err
		}
		t.list = append(t.list, store)
	}
	phase := r.opts.Progress.Begin("reading the state table", "partitions", int64(partitions))
	defer phase.End()
	err = r.each(ctx, partitions, func(ctx context.Context, p int32) error {
		defer phase.Add(1)
		return t.list[p].CatchUp(ctx, r.cl, schema.TopicState, p)
	})
	return t, err
}

// close removes the copy.
func (t *tables) close() error {
	var errs []error
	for _, s := range t.list {
		errs = append(errs, s.Close())
	}
	if t.stores != nil {
		t.stores.Close()
	}
	if t.dir != "" {
		errs = append(errs, os.RemoveAll(t.dir))
	}
	return errors.Join(errs...)
}

// progress is a partition's record; nil if it has none.
func (t *tables) progress(p int32) (*schema.Progress, error) {
	value, err := t.list[p].Get(schema.StateProgressKey)
	if err != nil || value == nil {
		return nil, err
	}
	progress := &schema.Progress{}
	if err := schema.DecodeProgress(value, progress); err != nil {
		return nil, fmt.Errorf("partition %d: %w", p, err)
	}
	return progress, nil
}

// counts are those of a post in a partition; found: it has a record of them.
func (t *tables) counts(p int32, post uint64) (c schema.Counts, found bool, err error) {
	value, err := t.list[p].Get(string(schema.AppendCountsKey(nil, post)))
	if err != nil || value == nil {
		return c, false, err
	}
	c, err = schema.DecodeCounts(value)
	return c, true, err
}

// eachAway calls do with the pairs of a partition that live in another one by the layout, in the order of posts; value is
// valid during the call only.
func (t *tables) eachAway(p int32, layout schema.Layout, do func(post, user uint64, home int32, value []byte) error) error {
	return t.each(p, func(post, user uint64, value []byte) error {
		if home := layout.Home(post, user); home != p {
			return do(post, user, home, value)
		}
		return nil
	})
}

// each calls do with all pairs of a partition, in the order of posts, as they were when it was called.
func (t *tables) each(p int32, do func(post, user uint64, value []byte) error) error {
	it, err := t.list[p].Iterator()
	if err != nil {
		return err
	}
	defer it.Release()
	for it.Next() {
		post, user, ok := schema.ParsePairKey(it.Key())
		if !ok {
			continue
		}
		value, err := it.Value()
		if err != nil {
			return err
		}
		if err := do(post, user, value); err != nil {
			return err
		}
	}
	return it.Err()
}
