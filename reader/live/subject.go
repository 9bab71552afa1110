package live

import (
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"kudos/reader/view"
	"kudos/reader/wire"
)

// subject is a post or a ranking that at least one stream shows.
type subject struct {
	current atomic.Pointer[message] // newest published value; nil: none yet. Only Run's goroutine stores it

	// The lock of the partition's watched guards the fields below.

	next    value // newer value, to be published at the next turn; nil: none
	streams []*stream
}

// watched has the subjects of one partition, by post or by the key of a ranking.
type watched[K comparable] struct {
	mu struct {
		sync.Mutex
		subjects map[K]*subject
		changed  []*subject // those with a next
		epoch    string     // of all streams of these subjects
		newest   int64      // position of the last callback
	}
}

// join registers a stream with the subjects of keys, and creates missing ones.
func (w *watched[K]) join(epoch string, keys []K, s *stream) []*subject {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewLocked(epoch)
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

// leave removes a stream, and deletes the subjects that no other stream shows.
func (w *watched[K]) leave(keys []K, subjects []*subject, s *stream) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, sub := range subjects {
		at := slices.Index(sub.streams, s)
		last := len(sub.streams) - 1
		sub.streams[at], sub.streams[last] = sub.streams[last], nil
		sub.streams = sub.streams[:last]
		// After endLocked, the key may have another subject.
		if last == 0 && w.mu.subjects[keys[i]] == sub {
			delete(w.mu.subjects, keys[i])
		}
	}
}

// setLocked stores a newer value for the next turn.
func (w *watched[K]) setLocked(sub *subject, v value) {
	if sub.next == nil {
		w.mu.changed = append(w.mu.changed, sub)
	}
	sub.next = v
}

// renewLocked ends the streams if the log was recreated, and reports whether it was.
func (w *watched[K]) renewLocked(epoch string) bool {
	if w.mu.epoch == epoch {
		return false
	}
	w.endLocked()
	w.mu.epoch = epoch
	return true
}

// endLocked ends the partition's streams and drops its subjects: what they published is not comparable with what comes.
func (w *watched[K]) endLocked() {
	for _, sub := range w.mu.subjects {
		for _, s := range sub.streams {
			s.end(errRecreated)
		}
	}
	w.mu.subjects, w.mu.changed = map[K]*subject{}, nil
}

// take returns the changes since the last call.
func (w *watched[K]) take() (changed []*subject, values []value) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed, w.mu.changed = w.mu.changed, nil
	for _, sub := range changed {
		values = append(values, sub.next)
		sub.next = nil
	}
	return changed, values
}

func (w *watched[K]) renew(epoch string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.renewLocked(epoch)
}

func (w *watched[K]) nudge(subjects []*subject) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sub := range subjects {
		for _, s := range sub.streams {
			signal(s.wake)
		}
	}
}

// registry has the watched of every partition that was ever requested.
type registry[K comparable] struct {
	epoch      func(partition int32) (string, error)
	partitions sync.Map // *watched[K] by partition
}

func (r *registry[K]) of(partition int32) *watched[K] {
	added := &watched[K]{}
	added.mu.subjects = map[K]*subject{}
	w, _ := r.partitions.LoadOrStore(partition, added)
	return w.(*watched[K])
}

func (r *registry[K]) all() iter.Seq2[int32, *watched[K]] {
	return func(yield func(int32, *watched[K]) bool) {
		r.partitions.Range(func(p, w any) bool { return yield(p.(int32), w.(*watched[K])) })
	}
}

// publish encodes the changes since the last call, and then wakes the streams that show them: once for all partitions.
func (r *registry[K]) publish(log *slog.Logger) {
	for partition, w := range r.all() {
		changed, values := w.take()
		if len(changed) == 0 {
			continue
		}
		// The epoch is read after the values were taken, so they are of this epoch or an older one. A view that cannot
		// tell its epoch now does not have a new one yet.
		if epoch, err := r.epoch(partition); err == nil && w.renew(epoch) {
			continue
		}
		for i, sub := range changed {
			m, err := values[i]()
			if err != nil {
				log.Error("live: cannot publish a value", "error", err)
				continue
			}
			sub.current.Store(m)
		}
		defer w.nudge(changed)
	}
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
		post := wire.PostLikes{PostID: c.PostID, Counts: c.Counts, AsOf: asOf}
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

// message is a value of a subject, encoded once for all streams that show it; only the event id differs. go-sse, which
// the tests read with, does not fit: its messages include their id, and its sessions have no write deadline.
type message struct {
	event  string // likes, trending
	offset int64  // position that the value is as of
	data   []byte // JSON, in one line
	sse    []byte // the event's fields except its id; data is a part of it
}

// value makes the message of a subject's value.
type value func() (*message, error)

// counts is the value of a post in one partition.
func counts(p wire.PostLikes) value {
	return func() (*message, error) { return newMessage("likes", p.AsOf.Offset, p.AppendJSON(nil)), nil }
}

// sharedCounts is the value of a post in several partitions, one of which changed: the sum at the time of publishing,
// which is as of a position of then. Values are published one after another, so none is older than the last, whichever
// partition changed. While partitions are being added, every post may be in several.
func sharedCounts(p wire.PostLikes, likes Likes) value {
	return func() (*message, error) {
		sum, asOf, err := likes.Counts([]uint64{p.PostID})
		if err != nil {
			return nil, fmt.Errorf("counts of post %d: %w", p.PostID, err)
		}
		p.Counts = sum[0]
		is := func(at wire.Position) bool { return at.Partition == p.AsOf.Partition }
		if i := slices.IndexFunc(asOf, is); i >= 0 {
			p.AsOf = asOf[i]
		}
		return counts(p)()
	}
}

func ranking(r *view.Ranking) value {
	return func() (*message, error) {
		data, err := json.Marshal(wire.NewRanking(r.Ranking))
		if err != nil {
			return nil, fmt.Errorf("encoding ranking %s/%s of %s: %w", r.Region, r.Window, r.AsOf, err)
		}
		return newMessage("trending", r.AsOf.Offset, data), nil
	}
}

func newMessage(event string, offset int64, data []byte) *message {
	sse := fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, data)
	to := len(sse) - len("\n\n")
	return &message{event: event, offset: offset, data: sse[to-len(data) : to : to], sse: sse}
}
