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

// Likes is what is needed of the copy of the state table, view.Likes.
type Likes interface {
	Homes(post uint64) ([]int32, error)
	Epoch(partition int32) (string, error)
	AsOf(partition int32) (wire.Position, error)
	Counts(posts []uint64) ([]schema.Counts, []wire.Position, error)
	// Watch: nil changes say that anything may have changed.
	Watch(func(asOf wire.Position, changes []view.Change))
}

// Rankings is what is needed of the copy of trending, view.Rankings.
type Rankings interface {
	Partition(region, window string) (int32, error)
	Epoch(partition int32) (string, error)
	Get(region, window string) (*view.Ranking, error)
	Watch(func(*view.Ranking))
}

// notReady tells what passes when a copy has caught up.
func notReady(err error) bool {
	var e *view.NotReadyError
	return errors.As(err, &e)
}

// errEpochs: likes was made anew, and not all partitions are of the new one yet.
var errEpochs = errors.New("partitions are of different logs: likes is being made anew")

// subscribe makes a stream's groups, registers them and reads the current values.
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
		g.shown = make([]int64, len(g.subjects))
		g.covered = -1
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

// addPosts registers a stream with posts, by partition.
func (h *Hub) addPosts(s *stream, posts []uint64) error {
	byPartition := map[int32][]uint64{}
	for _, post := range posts {
		homes, err := h.likes.Homes(post)
		if err != nil {
			return err
		}
		for _, partition := range homes {
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
		g := addGroup(s, h.posts, partition, byPartition[partition])
		g.read = func(atLeast int64) (int64, []value, error) {
			return h.readPosts(partition, byPartition[partition], atLeast)
		}
	}
	return nil
}

func (h *Hub) readPosts(partition int32, posts []uint64, atLeast int64) (int64, []value, error) {
	if atLeast > 0 {
		if asOf, err := h.likes.AsOf(partition); err != nil || asOf.Offset < atLeast {
			return asOf.Offset, nil, err
		}
	}
	counts, positions, err := h.likes.Counts(posts)
	if err != nil {
		return 0, nil, err
	}
	at := slices.IndexFunc(positions, func(p wire.Position) bool { return p.Partition == partition })
	if at < 0 { // another layout than a moment ago
		return 0, nil, &view.NotReadyError{Topic: schema.TopicState, Partition: partition, Behind: -1}
	}
	values := make([]value, len(posts))
	for i, post := range posts {
		values[i] = postValue{PostID: post, Likes: counts[i].Likes, Dislikes: counts[i].Dislikes, AsOf: positions[at]}
	}
	return positions[at].Offset, values, nil
}

// addRanking registers a stream with a ranking.
func (h *Hub) addRanking(s *stream, key rankingKey) error {
	partition, err := h.rankings.Partition(key.region, key.window)
	if err != nil {
		return err
	}
	if s.epoch, err = h.rankings.Epoch(partition); err != nil {
		return err
	}
	g := addGroup(s, h.ranked, partition, []rankingKey{key})
	g.read = func(int64) (int64, []value, error) {
		r, err := h.rankings.Get(key.region, key.window)
		if err != nil {
			return 0, nil, fmt.Errorf("reading ranking %s/%s: %w", key.region, key.window, err)
		}
		if r == nil {
			return 0, []value{nil}, nil
		}
		return r.AsOf.Offset, []value{rankingValue(*r)}, nil
	}
	return nil
}

// addGroup registers a stream with subjects of a partition.
func addGroup[K comparable](s *stream, r *registry[K], partition int32, keys []K) *group {
	w := r.of(partition)
	subjects := w.join(s.epoch, keys, s)
	g := &group{partition: partition, subjects: subjects, leave: func() { w.leave(keys, subjects, s) }}
	epoch := s.epoch
	g.check = func() error {
		now, err := r.epoch(partition)
		if err == nil && now != epoch {
			err = errAnew
		}
		return err
	}
	s.groups = append(s.groups, g)
	return g
}

// likesChanged keeps what streams show of a partition's changes, which may be those of
// 50,000 posts at a time.
func (h *Hub) likesChanged(asOf wire.Position, changes []view.Change) {
	w := h.posts.of(asOf.Partition)
	w.mu.Lock()
	defer w.mu.Unlock()
	// A rebuild of the state table may change counts without moving on.
	if changes == nil || asOf.Offset <= w.mu.newest {
		w.endLocked(errAnew)
	}
	w.mu.newest = asOf.Offset
	if len(w.mu.subjects) == 0 {
		return
	}
	for i := range changes {
		c := &changes[i]
		if sub := w.mu.subjects[c.PostID]; sub != nil {
			v := postValue{PostID: c.PostID, Likes: c.Likes, Dislikes: c.Dislikes, AsOf: asOf}
			if homes, err := h.likes.Homes(c.PostID); err == nil && len(homes) > 1 {
				w.setLocked(sub, sharedValue{v, h.likes})
				continue
			}
			w.setLocked(sub, v)
		}
	}
	if len(w.mu.changed) > 0 {
		h.somethingChanged()
	}
}

func (h *Hub) rankingChanged(r *view.Ranking) {
	w := h.ranked.of(r.AsOf.Partition)
	w.mu.Lock()
	defer w.mu.Unlock()
	if sub := w.mu.subjects[rankingKey{r.Region, r.Window}]; sub != nil {
		w.setLocked(sub, rankingValue(*r))
		h.somethingChanged()
	}
}
