// Package fold is the heart of kudos: it turns a batch of events and the state before
// it into the state after it and the net changes. It is a pure function: no Kafka, no
// SQL, no clock, no setting. The same events lead to the same state and the same
// changes in total, however they are cut into batches.
package fold

import (
	"cmp"
	"slices"

	"kudos/schema"
)

// Event is an event of the partition with its place in the log. Its time is settled
// (schema.Event.ResolveTime).
type Event struct {
	schema.Event
	Offset int64
}

// PairKey names a user's reaction to a post.
type PairKey struct{ PostID, UserID uint64 }

func (k PairKey) compare(o PairKey) int {
	return cmp.Or(cmp.Compare(k.PostID, o.PostID), cmp.Compare(k.UserID, o.UserID))
}

// State is the state before a batch. Keys and posts come sorted and without
// duplicates; found is called with the index of each one that is there.
type State interface {
	Pairs(keys []PairKey, found func(i int, p schema.Pair)) error
	Counts(posts []uint64, found func(i int, c schema.Counts)) error
}

// Result is what a batch changes. All of it is in key order, and valid until the next
// call of Fold.
type Result struct {
	Pairs  []PairState
	Counts []PostCounts
	// Updates are the net changes: posts whose events cancel each other out within
	// the batch have none.
	Updates []PostUpdate
}

// PairState is the new state of a pair.
type PairState struct {
	Key PairKey
	schema.Pair
}

// PostCounts are the new counts of a post.
type PostCounts struct {
	PostID uint64
	schema.Counts
}

// PostUpdate is the net change of a post: its counts after the batch and how they
// came about, by minute and region.
type PostUpdate struct {
	PostID uint64
	Counts schema.Counts
	Deltas []schema.Delta
}

// Folder folds batches. It keeps its buffers between batches; one goroutine uses it.
type Folder struct {
	order  []eventRef
	keys   []PairKey
	pairs  []pair
	posts  []uint64
	counts []schema.Counts
	deltas []schema.Delta
	index  map[deltaKey]int // into deltas
	post   int32            // index in posts of the post under way
	result Result
}

// eventRef sorts events by pair without moving them.
type eventRef struct {
	key PairKey
	i   int32
}

type pair struct {
	schema.Pair
	known   bool // there was a state before
	changed bool
}

type deltaKey struct {
	minute int64
	post   int32 // index in posts
	region schema.Region
}

// Fold applies the events to the state.
func (f *Folder) Fold(events []Event, state State) (*Result, error) {
	f.sortByPair(events)
	if err := f.load(state); err != nil {
		return nil, err
	}
	f.result.Pairs = f.result.Pairs[:0]
	f.result.Counts = f.result.Counts[:0]
	f.result.Updates = f.result.Updates[:0]
	f.deltas = f.deltas[:0]
	clear(f.index)
	ref, key := 0, 0
	for post := range f.posts {
		firstDelta := len(f.deltas)
		f.post = int32(post)
		for ; key < len(f.keys) && f.keys[key].PostID == f.posts[post]; key++ {
			for ; ref < len(f.order) && f.order[ref].key == f.keys[key]; ref++ {
				f.apply(&f.pairs[key], &events[f.order[ref].i])
			}
			if f.pairs[key].changed {
				f.result.Pairs = append(f.result.Pairs, PairState{f.keys[key], f.pairs[key].Pair})
			}
		}
		f.finishPost(post, firstDelta)
	}
	return &f.result, nil
}

// sortByPair brings the events into the order of their pairs; those of one pair stay
// in the order of the batch.
func (f *Folder) sortByPair(events []Event) {
	f.order = f.order[:0]
	for i := range events {
		f.order = append(f.order, eventRef{PairKey{events[i].PostID, events[i].UserID}, int32(i)})
	}
	slices.SortFunc(f.order, func(a, b eventRef) int {
		return cmp.Or(a.key.compare(b.key), cmp.Compare(a.i, b.i))
	})
	f.keys, f.posts = f.keys[:0], f.posts[:0]
	for _, ref := range f.order {
		if n := len(f.keys); n > 0 && f.keys[n-1] == ref.key {
			continue
		}
		f.keys = append(f.keys, ref.key)
		if n := len(f.posts); n == 0 || f.posts[n-1] != ref.key.PostID {
			f.posts = append(f.posts, ref.key.PostID)
		}
	}
}

// load reads the state of the pairs and posts of the batch.
func (f *Folder) load(state State) error {
	f.pairs = zeroed(f.pairs, len(f.keys))
	f.counts = zeroed(f.counts, len(f.posts))
	if f.index == nil {
		f.index = map[deltaKey]int{}
	}
	err := state.Pairs(f.keys, func(i int, p schema.Pair) { f.pairs[i] = pair{Pair: p, known: true} })
	if err != nil {
		return err
	}
	return state.Counts(f.posts, func(i int, c schema.Counts) { f.counts[i] = c })
}

func zeroed[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// apply lets an event have its say: the latest by time, then by offset, decides. Time
// and offset are kept even when the reaction stays the same, so that an event between
// the two does not come back to life later.
func (f *Folder) apply(p *pair, e *Event) {
	if p.known && cmp.Or(cmp.Compare(e.TimeMs, p.TimeMs), cmp.Compare(e.Offset, p.Offset)) <= 0 {
		return
	}
	reaction := e.Action.Reaction()
	same := p.known && reaction == p.Reaction
	p.known, p.changed = true, true
	p.TimeMs, p.Offset = e.TimeMs, e.Offset
	if same {
		return
	}
	// What was counted is taken back where it was counted.
	f.count(p.Reaction, p.Region, p.SinceMs, -1)
	p.Reaction, p.Region, p.SinceMs = reaction, e.Region, e.TimeMs
	f.count(p.Reaction, p.Region, p.SinceMs, +1)
}

// count adds n of a reaction to the deltas of the present post.
func (f *Folder) count(r schema.Reaction, region schema.Region, sinceMs, n int64) {
	if r == schema.NoReaction {
		return
	}
	key := deltaKey{schema.MinuteOf(sinceMs), f.post, region}
	i, ok := f.index[key]
	if !ok {
		i = len(f.deltas)
		f.index[key] = i
		f.deltas = append(f.deltas, schema.Delta{Region: region, Minute: key.minute})
	}
	if r == schema.Liked {
		f.deltas[i].Likes += n
	} else {
		f.deltas[i].Dislikes += n
	}
}

// finishPost puts the deltas of a post from first on into order, drops those that
// came to nothing, and records what changed.
func (f *Folder) finishPost(post, first int) {
	deltas := slices.DeleteFunc(f.deltas[first:], func(d schema.Delta) bool { return d.Likes == 0 && d.Dislikes == 0 })
	f.deltas = f.deltas[:first+len(deltas)]
	if len(deltas) == 0 {
		return
	}
	slices.SortFunc(deltas, func(a, b schema.Delta) int {
		return cmp.Or(cmp.Compare(a.Minute, b.Minute), slices.Compare(a.Region[:], b.Region[:]))
	})
	before := f.counts[post]
	after := before
	for i := range deltas {
		after.Likes += deltas[i].Likes
		after.Dislikes += deltas[i].Dislikes
	}
	if after != before {
		f.result.Counts = append(f.result.Counts, PostCounts{f.posts[post], after})
	}
	f.result.Updates = append(f.result.Updates, PostUpdate{PostID: f.posts[post], Counts: after, Deltas: slices.Clip(deltas)})
}
