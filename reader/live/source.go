package live

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

// Likes is what the hub needs of view.Likes.
type Likes interface {
	PartitionsOf(post uint64) ([]int32, error)
	Epoch(partition int32) (string, error)
	AsOf(partition int32) (wire.Position, error)
	Counts(posts []uint64) ([]schema.Counts, []wire.Position, error)
	// Watch reports changes. If they are nil, anything may have changed.
	Watch(func(asOf wire.Position, changes []view.Change))
}

// Rankings is what the hub needs of view.Rankings.
type Rankings interface {
	Partition(region, window string) (int32, error)
	Epoch(partition int32) (string, error)
	Get(region, window string) (*view.Ranking, error)
	Watch(func(*view.Ranking))
}

// errEpochs means that likes was recreated, and that not all partitions of the view follow the new topic yet.
var errEpochs = errors.New("partitions are of different logs: likes is being recreated")

// notReady reports whether err passes once a view has caught up.
func notReady(err error) bool {
	var e *view.NotReadyError
	return errors.As(err, &e)
}

// subscribe builds the groups of a stream, registers them and reads the current values.
func (h *Hub) subscribe(s *stream, q *wanted) (err error) {
	if q.ranking != nil {
		err = h.addRanking(s, *q.ranking)
	} else {
		err = h.addPosts(s, q.posts)
	}
	if err != nil {
		return err
	}
	for _, g := range s.groups {
		if q.seen != nil && q.seen.epoch == s.epoch {
			if offset, ok := q.seen.offsets[g.partition]; ok {
				g.covered, g.want = offset, offset
			}
		}
		if err := g.load(); err != nil {
			return err
		}
	}
	return nil
}

func (h *Hub) addPosts(s *stream, posts []uint64) error {
	byPartition := map[int32][]uint64{}
	for _, post := range posts {
		owners, err := h.likes.PartitionsOf(post)
		if err != nil {
			return err
		}
		for _, partition := range owners {
			byPartition[partition] = append(byPartition[partition], post)
		}
	}
	for _, partition := range slices.Sorted(maps.Keys(byPartition)) {
		epoch, err := h.likes.Epoch(partition)
		if err != nil {
			return err
		}
		if s.epoch != "" && s.epoch != epoch {
			return errEpochs
		}
		s.epoch = epoch
		posts := byPartition[partition]
		addGroup(s, h.posts, partition, posts, func(atLeast int64) (int64, []value, error) {
			return h.readPosts(partition, posts, atLeast)
		})
	}
	return nil
}

func (h *Hub) readPosts(partition int32, posts []uint64, atLeast int64) (int64, []value, error) {
	if atLeast > 0 {
		if asOf, err := h.likes.AsOf(partition); err != nil || asOf.Offset < atLeast {
			return asOf.Offset, nil, err
		}
	}
	all, positions, err := h.likes.Counts(posts)
	if err != nil {
		return 0, nil, err
	}
	at := slices.IndexFunc(positions, func(p wire.Position) bool { return p.Partition == partition })
	if at < 0 { // the layout has just changed
		return 0, nil, &view.NotReadyError{Topic: schema.TopicState, Partition: partition, Behind: -1}
	}
	values := make([]value, len(posts))
	for i, post := range posts {
		values[i] = counts(wire.NewPostLikes(post, all[i], positions[at]))
	}
	return positions[at].Offset, values, nil
}

func (h *Hub) addRanking(s *stream, key rankingKey) error {
	partition, err := h.rankings.Partition(key.region, key.window)
	if err != nil {
		return err
	}
	if s.epoch, err = h.rankings.Epoch(partition); err != nil {
		return err
	}
	addGroup(s, h.ranked, partition, []rankingKey{key}, func(int64) (int64, []value, error) {
		r, err := h.rankings.Get(key.region, key.window)
		if err != nil {
			return 0, nil, fmt.Errorf("reading ranking %s/%s: %w", key.region, key.window, err)
		}
		if r == nil {
			return 0, []value{nil}, nil
		}
		return r.AsOf.Offset, []value{ranking(r)}, nil
	})
	return nil
}

// addGroup registers a stream with subjects of one partition; read reads their values.
func addGroup[K comparable](s *stream, r *registry[K], partition int32, keys []K, read reading) {
	w, epoch := r.of(partition), s.epoch
	subjects := w.join(epoch, keys, s)
	s.groups = append(s.groups, &group{
		partition: partition, subjects: subjects, read: read, covered: -1, shown: make([]int64, len(subjects)),
		leave: func() { w.leave(keys, subjects, s) },
		check: func() error {
			now, err := r.epoch(partition)
			if err == nil && now != epoch {
				err = errRecreated
			}
			return err
		},
	})
}

// likesChanged stores the changes that streams show. A call may report changes of 50,000 posts.
func (h *Hub) likesChanged(asOf wire.Position, changes []view.Change) {
	w := h.posts.of(asOf.Partition)
	w.mu.Lock()
	defer w.mu.Unlock()
	// A rebuild of the state table may change counts without advancing the offset.
	if changes == nil || asOf.Offset <= w.mu.newest {
		w.endLocked()
	}
	w.mu.newest = asOf.Offset
	if len(w.mu.subjects) == 0 {
		return
	}
	for i := range changes {
		c := &changes[i]
		sub := w.mu.subjects[c.PostID]
		if sub == nil {
			continue
		}
		post := wire.NewPostLikes(c.PostID, c.Counts, asOf)
		if owners, err := h.likes.PartitionsOf(c.PostID); err == nil && len(owners) > 1 {
			w.setLocked(sub, sharedCounts(post, h.likes))
		} else {
			w.setLocked(sub, counts(post))
		}
	}
	if len(w.mu.changed) > 0 {
		signal(h.changed)
	}
}

func (h *Hub) rankingChanged(r *view.Ranking) {
	w := h.ranked.of(r.AsOf.Partition)
	w.mu.Lock()
	defer w.mu.Unlock()
	if sub := w.mu.subjects[rankingKey{r.Region, r.Window}]; sub != nil {
		w.setLocked(sub, ranking(r))
		signal(h.changed)
	}
}
