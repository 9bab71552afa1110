package repartition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ops/audit"
	"kudos/ops/await"
	"kudos/ops/progress"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/stream/store"
)

// mover moves reactions, thousands per transaction. It must not be used after an error.
type mover struct {
	r        *repartition
	t        *transaction
	tables   *tables
	phase    *progress.Phase
	progress []*schema.Progress // of each partition, including what the next transaction adds

	// The next transaction: how many pairs it moves, and the partitions it writes to.
	pairs   int
	touched map[int32]bool
}

// newMover checks that all partitions, as copied, are locked for this layout.
func newMover(ctx context.Context, r *repartition, tables *tables, phase *progress.Phase) (*mover, error) {
	m := &mover{r: r, t: r.t, tables: tables, phase: phase, touched: map[int32]bool{}}
	for p, copied := range tables.list {
		progress, ok, err := table.ReadProgress(copied)
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", p, err)
		}
		if !ok || !progress.Migrating || !r.isTarget(&progress) {
			return nil, fmt.Errorf("partition %d of the state table is not locked for this repartition: "+
				"something else has written to it", p)
		}
		if err := m.t.locate(ctx, int32(p), &progress); err != nil {
			return nil, err
		}
		m.progress = append(m.progress, &progress)
	}
	return m, nil
}

// copyVoided gives partitions that were added the voided users of the first one: they had no event for them. A run of
// `kudos void` that is in progress begins again, since the layout has changed.
func (m *mover) copyVoided(ctx context.Context) error {
	from, to := schema.VoidKeys()
	for p, progress := range m.progress {
		if !progress.Added {
			continue
		}
		n := 0
		err := store.Scan(m.tables.list[0], from, to, func(key, value []byte) (bool, error) {
			if _, ok := schema.ParseVoidKey(key); !ok {
				return true, nil
			}
			m.t.add(schema.TopicState, int32(p), bytes.Clone(key), bytes.Clone(value))
			m.touched[int32(p)] = true
			if n++; n%m.r.opts.MovePairs == 0 {
				return true, m.send(ctx)
			}
			return true, nil
		})
		if err == nil && n%m.r.opts.MovePairs > 0 {
			err = m.send(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// migrating is the post whose pairs are being read.
type migrating struct {
	id    uint64
	stays bool                  // some of its pairs stay
	to    map[int32]audit.Cells // what the next transaction moves, by target partition
}

// moveFrom moves the reactions in partition from that another partition owns by the new layout.
func (m *mover) moveFrom(ctx context.Context, from int32) error {
	post := &migrating{to: map[int32]audit.Cells{}}
	err := m.tables.each(from, func(id, user uint64, value []byte) error {
		if id != post.id {
			if err := m.addCounts(from, post, false); err != nil {
				return err
			}
			post = &migrating{id: id, to: map[int32]audit.Cells{}}
		}
		owner := m.r.layout.PartitionOf(id, user)
		if owner == from {
			post.stays = true
			return nil
		}
		if m.pairs == m.r.opts.MovePairs {
			if err := m.addCounts(from, post, true); err != nil {
				return err
			}
			if err := m.send(ctx); err != nil {
				return err
			}
		}
		return m.addPair(from, owner, post, user, value)
	})
	if err == nil {
		err = m.addCounts(from, post, false)
	}
	if err != nil || m.pairs == 0 {
		return err
	}
	return m.send(ctx)
}

// addPair adds a pair to the next transaction. Its offset becomes -1: in the new partition every event is later in the
// log, so only event times compare. It fails if the target already has the pair, since nothing else should write there.
func (m *mover) addPair(from, to int32, post *migrating, user uint64, value []byte) error {
	var pair schema.Pair
	if err := schema.DecodePair(value, &pair); err != nil {
		return fmt.Errorf("post %d, user %d: %w", post.id, user, err)
	}
	key := schema.AppendPairKey(nil, post.id, user)
	found, err := m.tables.list[to].Find(key, func([]byte) error { return nil })
	if err != nil {
		return err
	}
	if found {
		return fmt.Errorf("the reaction of user %d to post %d is in two partitions of the state table, "+
			"%d and another one: something else has written there; it was not overwritten", user, post.id, to)
	}
	if post.to[to] == nil {
		post.to[to] = audit.Cells{}
	}
	post.to[to].Add(&pair)
	pair.Offset = -1
	m.t.add(schema.TopicState, from, key, nil)
	m.t.add(schema.TopicState, to, key, schema.AppendPair(nil, &pair))
	m.touched[from], m.touched[to] = true, true
	m.pairs++
	return nil
}

// addCounts adds a post's counts and updates for its pairs in the next transaction; open: later ones move more pairs.
func (m *mover) addCounts(from int32, post *migrating, open bool) error {
	if len(post.to) == 0 {
		return nil
	}
	had, recorded, err := table.ReadCounts(m.tables.list[from], post.id)
	if err != nil {
		return err
	}
	var moved schema.Counts
	for _, cells := range post.to {
		moved = moved.Plus(cells.Sum())
	}
	left := had.Minus(moved)
	leaves := !post.stays && !open // all pairs of the post are gone
	if leaves && left != (schema.Counts{}) {
		m.r.result.Repaired++
		left = schema.Counts{}
	}
	if !open {
		m.r.result.Posts++
	}
	key := schema.AppendPostKey(nil, post.id)
	switch {
	case leaves && recorded:
		m.t.counts(from, post.id, nil)
	case !leaves && left != had:
		m.t.counts(from, post.id, schema.AppendCounts(nil, left))
	}
	buckets := m.r.layout.Buckets(post.id)
	update := func(at, other int32, counts schema.Counts, deltas []schema.Delta) {
		all := schema.Update{Counts: counts, Deltas: deltas, Buckets: buckets, Moved: true, Other: other}
		for u := range all.Split() {
			m.t.update(at, m.progress[at], key, u)
		}
	}
	for _, to := range slices.Sorted(maps.Keys(post.to)) {
		cells := post.to[to]
		there, _, err := table.ReadCounts(m.tables.list[to], post.id)
		if err != nil {
			return err
		}
		after := there.Plus(cells.Sum())
		if after != there {
			m.t.counts(to, post.id, schema.AppendCounts(nil, after))
		}
		moved = moved.Minus(cells.Sum())
		update(from, to, left.Plus(moved), cells.Deltas(-1))
		update(to, from, after, cells.Deltas(1))
	}
	clear(post.to)
	return nil
}

// send commits the next transaction, and applies it to the copies.
func (m *mover) send(ctx context.Context) error {
	touched := slices.Sorted(maps.Keys(m.touched))
	for _, p := range touched {
		m.t.progress(p, m.progress[p])
	}
	sent, err := m.t.commit(ctx)
	if err != nil {
		return err
	}
	for _, p := range touched {
		var records []*kgo.Record
		for _, rec := range sent {
			if rec.Topic == schema.TopicState && rec.Partition == p {
				records = append(records, rec)
			}
		}
		if err := m.tables.list[p].Replay(records, records[len(records)-1].Offset); err != nil {
			return err
		}
	}
	m.r.result.Transactions++
	m.r.result.Pairs += int64(m.pairs)
	m.phase.Add(int64(m.pairs))
	m.pairs = 0
	clear(m.touched)
	return nil
}

// unlock makes all partitions fold again, in one transaction.
func (m *mover) unlock(ctx context.Context) error {
	for p, progress := range m.progress {
		progress.Migrating, progress.Added = false, false
		m.t.progress(int32(p), progress)
	}
	sent, err := m.t.commit(ctx)
	if err != nil {
		return err
	}
	m.r.result.Transactions++
	return await.Visible(ctx, m.r.cl, sent...)
}

// tables is a temporary copy of the state table, one store per partition, on disk so that memory does not grow with it.
type tables struct {
	dir    string
	stores *store.Set
	list   []*store.Store
}

const copyCacheBytes, copyMemtableBytes = 64 << 20, 4 << 20 // the cache is for all partitions, a memtable for each

// openTables copies the state table as committed now.
func (r *repartition) openTables(ctx context.Context, partitions int32) (*tables, error) {
	dir, err := os.MkdirTemp(r.opts.TempDir, "kudos-repartition-")
	if err != nil {
		return nil, fmt.Errorf("creating a directory for a copy of the state table: %w", err)
	}
	t := &tables{dir: dir, stores: store.NewSet(filepath.Join(dir, "state"), copyCacheBytes, r.log)}
	t.stores.MemtableBytes = copyMemtableBytes
	for p := range partitions {
		t.list = append(t.list, t.stores.New(schema.TopicState, p))
	}
	phase := r.opts.Progress.Begin("reading the state table", "partitions", int64(partitions))
	defer phase.End()
	err = r.each(ctx, partitions, func(ctx context.Context, p int32) error {
		defer phase.Add(1)
		_, err := t.list[p].CatchUp(ctx, r.cl, store.Hooks{})
		return err
	})
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *tables) close() error {
	var errs []error
	for _, s := range t.list {
		errs = append(errs, s.Close())
	}
	t.stores.Close()
	return errors.Join(append(errs, os.RemoveAll(t.dir))...)
}

// each calls do for all pairs of a partition as of the call, in post order. value is valid during the call only.
func (t *tables) each(p int32, do func(post, user uint64, value []byte) error) error {
	return store.Scan(t.list[p], nil, nil, func(key, value []byte) (more bool, err error) {
		if post, user, ok := schema.ParsePairKey(key); ok {
			err = do(post, user, value)
		}
		return true, err
	})
}
