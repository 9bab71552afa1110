package live

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// subject is a post or a ranking that at least one stream shows.
type subject struct {
	// current is the newest value that was published; nil: none was, since the subject
	// is shown. Run's goroutine alone stores it.
	current atomic.Pointer[message]

	// What follows is guarded by the lock of the partition's watched.

	next    value // newer, to be published at the next turn; nil: there is none
	streams []*stream
}

// watched are the subjects of one partition, by post or by the key of a ranking.
type watched[K comparable] struct {
	mu struct {
		sync.Mutex
		subjects map[K]*subject
		changed  []*subject // those with a next
		epoch    string     // that all streams of these subjects are of
		newest   int64      // position of the callback before
	}
}

// join registers a stream with the subjects of keys, and makes those that are new.
func (w *watched[K]) join(epoch string, keys []K, s *stream) []*subject {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.epoch != epoch {
		w.endLocked(errAnew)
		w.mu.epoch = epoch
	}
	subjects := make([]*subject, len(keys))
	for i, key := range keys {
		sub := w.mu.subjects[key]
		if sub == nil {
			sub = &subject{}
			w.mu.subjects[key] = sub
		}
		sub.streams = append(sub.streams, s)
		subjects[i] = sub
	}
	return subjects
}

// leave takes a stream out, and frees the subjects that nobody else shows.
func (w *watched[K]) leave(keys []K, subjects []*subject, s *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, sub := range subjects {
		at := slices.Index(sub.streams, s)
		last := len(sub.streams) - 1
		sub.streams[at], sub.streams[last] = sub.streams[last], nil
		sub.streams = sub.streams[:last]
		// After endLocked another subject may stand there.
		if last == 0 && w.mu.subjects[keys[i]] == sub {
			delete(w.mu.subjects, keys[i])
		}
	}
}

// setLocked keeps a newer value for the next turn.
func (w *watched[K]) setLocked(sub *subject, v value) {
	if sub.next == nil {
		w.mu.changed = append(w.mu.changed, sub)
	}
	sub.next = v
}

// endLocked ends the streams of the partition and forgets its subjects: what they have
// published cannot be compared with what comes.
func (w *watched[K]) endLocked(cause error) {
	for _, sub := range w.mu.subjects {
		for _, s := range sub.streams {
			s.end(cause)
		}
	}
	w.mu.subjects, w.mu.changed = map[K]*subject{}, nil
}

// publish encodes what has changed and wakes the streams that show it. epoch is asked
// only then, after the values were taken: they are of that epoch or of an older one.
func (w *watched[K]) publish(epoch func() (string, error), log *slog.Logger) {
	w.mu.Lock()
	changed := w.mu.changed
	next := make([]value, len(changed))
	for i, sub := range changed {
		next[i], sub.next = sub.next, nil
	}
	w.mu.changed = nil
	w.mu.Unlock()
	if len(changed) == 0 {
		return
	}
	// A copy that cannot tell its epoch now has not another one yet.
	if now, err := epoch(); err == nil && w.endIfAnew(now) {
		return
	}
	for i, sub := range changed {
		m, err := next[i].encode()
		if err != nil {
			log.Error("live: a value cannot be shown", "error", err)
			continue
		}
		sub.current.Store(m)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sub := range changed {
		for _, s := range sub.streams {
			s.nudge()
		}
	}
}

// endIfAnew ends the streams if the log was made anew.
func (w *watched[K]) endIfAnew(epoch string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.epoch == epoch {
		return false
	}
	w.endLocked(errAnew)
	w.mu.epoch = epoch
	return true
}

// registry has the watched of all partitions that were ever heard of.
type registry[K comparable] struct {
	epoch func(partition int32) (string, error)
	mu    struct {
		sync.RWMutex
		partitions map[int32]*watched[K]
	}
}

func newRegistry[K comparable](epoch func(int32) (string, error)) *registry[K] {
	r := &registry[K]{epoch: epoch}
	r.mu.partitions = map[int32]*watched[K]{}
	return r
}

// of returns what is watched of a partition.
func (r *registry[K]) of(partition int32) *watched[K] {
	r.mu.RLock()
	w := r.mu.partitions[partition]
	r.mu.RUnlock()
	if w != nil {
		return w
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w = r.mu.partitions[partition]; w == nil {
		w = &watched[K]{}
		w.mu.subjects = map[K]*subject{}
		r.mu.partitions[partition] = w
	}
	return w
}

// all returns what is watched, by partition.
func (r *registry[K]) all() map[int32]*watched[K] {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return maps.Clone(r.mu.partitions)
}

// publish makes the values known that have changed since the turn before.
func (r *registry[K]) publish(log *slog.Logger) {
	for partition, w := range r.all() {
		w.publish(func() (string, error) { return r.epoch(partition) }, log)
	}
}
