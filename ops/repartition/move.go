package repartition

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"kudos/ops/audit"
	"kudos/schema"
)

// mover moves reactions, some thousands in a transaction.
type mover struct {
	r        *Repartition
	t        *transaction
	tables   *tables
	progress []*schema.Progress // of each partition, as committed
}

// newMover fences another one.
func newMover(ctx context.Context, r *Repartition) (*mover, error) {
	t, err := r.begin(ctx, schema.RepartitionTransactionalID)
	if err != nil {
		return nil, err
	}
	return &mover{r: r, t: t}, nil
}

func (m *mover) close() { m.t.close() }

// take begins with what was read, which has to be locked, all of it, for this layout.
func (m *mover) take(tables *tables) error {
	m.tables = tables
	m.progress = make([]*schema.Progress, len(tables.list))
	for p := range m.progress {
		progress, err := tables.progress(int32(p))
		if err != nil {
			return err
		}
		if progress == nil || !progress.Moving || !m.r.isTarget(progress) {
			return fmt.Errorf("partition %d of the state table is not locked for this: something else has written to it", p)
		}
		m.progress[p] = progress
	}
	return nil
}

// load is what one transaction moves, away from one partition.
type load struct {
	from  int32
	pairs int
	posts map[uint64]*postLoad
	order []uint64 // of posts
}

// postLoad is what of a post is moved.
type postLoad struct {
	to map[int32]*share
	// stays: some of it lives here; open: more of it may follow in the next transaction.
	stays, open bool
}

// share is what goes to one partition.
type share struct {
	keys, values [][]byte // of pairs
	deltas       map[deltaKey]schema.Counts
}

type deltaKey struct {
	minute int64
	region schema.Region
}

func newLoad(from int32) *load { return &load{from: from, posts: map[uint64]*postLoad{}} }

func (l *load) post(id uint64) *postLoad {
	p := l.posts[id]
	if p == nil {
		p = &postLoad{to: map[int32]*share{}}
		l.posts[id] = p
		l.order = append(l.order, id)
	}
	return p
}

// add takes a pair along. In the partition where it comes to, all events come later than it: only their times compare.
func (l *load) add(post, user uint64, to int32, pair schema.Pair) {
	p := l.post(post)
	s := p.to[to]
	if s == nil {
		s = &share{deltas: map[deltaKey]schema.Counts{}}
		p.to[to] = s
	}
	if one := audit.One(pair.Reaction); one != (schema.Counts{}) {
		at := deltaKey{schema.MinuteOf(pair.SinceMs), pair.Region}
		s.deltas[at] = s.deltas[at].Plus(one)
	}
	pair.Offset = -1
	s.keys = append(s.keys, schema.AppendPairKey(nil, post, user))
	s.values = append(s.values, schema.AppendPair(nil, &pair))
	l.pairs++
}

// moveFrom moves what is not at home in a partition.
func (m *mover) moveFrom(ctx context.Context, from int32, phase *audit.Phase) error {
	l, last := newLoad(from), uint64(0)
	stays := false // some pair of the last post does
	send := func(open bool) error {
		if l.pairs == 0 {
			return nil
		}
		l.posts[l.order[len(l.order)-1]].open = open
		if err := m.send(ctx, l); err != nil {
			return err
		}
		phase.Add(int64(l.pairs))
		m.r.result.Pairs += int64(l.pairs)
		l = newLoad(from)
		return nil
	}
	err := m.tables.each(from, func(post, user uint64, value []byte) error {
		if post != last {
			last, stays = post, false
		}
		home := m.r.layout.Home(post, user)
		if home == from {
			stays = true
			if p := l.posts[post]; p != nil {
				p.stays = true
			}
			return nil
		}
		if l.pairs == m.r.opts.MovePairs {
			if err := send(l.order[len(l.order)-1] == post); err != nil {
				return err
			}
		}
		var pair schema.Pair
		if err := schema.DecodePair(value, &pair); err != nil {
			return fmt.Errorf("post %d, user %d: %w", post, user, err)
		}
		l.add(post, user, home, pair)
		l.posts[post].stays = stays
		return nil
	})
	if err == nil {
		err = send(false)
	}
	return err
}

// send moves a load in one transaction.
func (m *mover) send(ctx context.Context, l *load) error {
	if err := m.t.start(); err != nil {
		return err
	}
	progress := map[int32]*schema.Progress{}
	of := func(p int32) *schema.Progress {
		if progress[p] == nil {
			now := *m.progress[p]
			progress[p] = &now
		}
		return progress[p]
	}
	of(l.from)
	for _, post := range l.order {
		if err := m.lay(l, post, of); err != nil {
			return err
		}
	}
	touched := slices.Sorted(maps.Keys(progress))
	for _, p := range touched {
		m.t.progress(p, progress[p])
	}
	if err := m.t.commit(ctx); err != nil {
		return err
	}
	m.r.result.Transactions++
	for p, now := range progress {
		m.progress[p] = now
	}
	return m.keep(touched)
}

// lay lays out the records of one post.
func (m *mover) lay(l *load, post uint64, of func(int32) *schema.Progress) error {
	p, layout := l.posts[post], m.r.layout
	buckets := layout.Buckets(post)
	had, recorded, err := m.tables.counts(l.from, post)
	if err != nil {
		return err
	}
	left := had
	for _, s := range p.to {
		left = left.Minus(s.sum())
	}
	leaves := !p.stays && !p.open // for good
	if leaves && left != (schema.Counts{}) {
		m.r.result.Mended++
		left = schema.Counts{}
	}
	if !p.open {
		m.r.result.Posts++
	}
	switch {
	case leaves && recorded:
		m.t.add(schema.TopicState, l.from, schema.AppendCountsKey(nil, post), nil)
	case !leaves && left != had:
		m.t.add(schema.TopicState, l.from, schema.AppendCountsKey(nil, post), schema.AppendCounts(nil, left))
	}
	key := schema.AppendPostKey(nil, post)
	for _, to := range slices.Sorted(maps.Keys(p.to)) {
		s := p.to[to]
		there, _, err := m.tables.counts(to, post)
		if err != nil {
			return err
		}
		for i := range s.keys {
			if err := m.mustLack(to, post, s.keys[i]); err != nil {
				return err
			}
			m.t.add(schema.TopicState, l.from, s.keys[i], nil)
			m.t.add(schema.TopicState, to, s.keys[i], s.values[i])
		}
		after := there.Plus(s.sum())
		if after != there {
			m.t.add(schema.TopicState, to, schema.AppendCountsKey(nil, post), schema.AppendCounts(nil, after))
		}
		for deltas := range slices.Chunk(s.sorted(-1), schema.MaxDeltas) {
			m.t.update(l.from, of(l.from), key, schema.Update{Counts: left, Deltas: deltas, Buckets: buckets, Moved: true, Other: to})
		}
		for deltas := range slices.Chunk(s.sorted(1), schema.MaxDeltas) {
			m.t.update(to, of(to), key, schema.Update{Counts: after, Deltas: deltas, Buckets: buckets, Moved: true, Other: l.from})
		}
		of(to)
	}
	return nil
}

// mustLack: nobody but this brings a pair to where it lives by the layout that is to be.
func (m *mover) mustLack(to int32, post uint64, key []byte) error {
	found, err := m.tables.list[to].Find(key, func([]byte) error { return nil })
	if err != nil || !found {
		return err
	}
	_, user, _ := schema.ParsePairKey(key)
	return fmt.Errorf("the reaction of user %d to post %d is in two partitions of the state table, %d and another one: something else has written there; nothing was moved over it", user, post, to)
}

// sum is what the share counts.
func (s *share) sum() (c schema.Counts) {
	for _, n := range s.deltas {
		c = c.Plus(n)
	}
	return c
}

// sorted are the deltas, in the fold's order, times sign.
func (s *share) sorted(sign int64) []schema.Delta {
	deltas := make([]schema.Delta, 0, len(s.deltas))
	for at, n := range s.deltas {
		deltas = append(deltas, schema.Delta{Region: at.region, Minute: at.minute, Likes: sign * n.Likes, Dislikes: sign * n.Dislikes})
	}
	slices.SortFunc(deltas, func(a, b schema.Delta) int {
		return cmp.Or(cmp.Compare(a.Minute, b.Minute), slices.Compare(a.Region[:], b.Region[:]))
	})
	return deltas
}

// keep has the copies be what is committed.
func (m *mover) keep(touched []int32) error {
	for _, p := range touched {
		w, last := m.tables.list[p].NewWrite(), int64(-1)
		for _, rec := range m.t.records {
			if rec.Topic != schema.TopicState || rec.Partition != p {
				continue
			}
			if err := w.Set(rec.Key, rec.Value); err != nil {
				w.Discard()
				return err
			}
			last = rec.Offset
		}
		if err := w.Commit(last); err != nil {
			return err
		}
	}
	return nil
}

// unlock has all partitions be folded again, at once.
func (m *mover) unlock(ctx context.Context) error {
	if err := m.t.start(); err != nil {
		return err
	}
	for p, progress := range m.progress {
		progress.Moving = false
		m.t.progress(int32(p), progress)
	}
	if err := m.t.commit(ctx); err != nil {
		return err
	}
	m.r.result.Transactions++
	return m.t.visible(ctx)
}
