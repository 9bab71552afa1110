// Package fold is the core of kudos: it turns events and a state into the next state and the net changes. It is pure:
// no Kafka, no SQL, no clock, no settings. The result does not depend on how events are split into batches.
package fold

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"

	"kudos/schema"
)

// Event is an event of the partition with its offset. Its time is resolved (schema.Event.ResolveTime).
type Event struct {
	schema.Event
	Offset int64
}

// PairKey identifies a reaction: a user and a post.
type PairKey struct{ PostID, UserID uint64 }

// State is the state before a batch. Keys and posts are distinct and in the order of their first event; found is called
// with the index of each one that exists.
type State interface {
	Pairs(keys []PairKey, found func(i int, p schema.Pair)) error
	Counts(posts []uint64, found func(i int, c schema.Counts)) error
}

// Result is what a batch changes, in the order of first events. It is valid until the next call of Fold.
type Result struct {
	Voids       []VoidedUser
	Pairs       []PairState
	Counts      []PostCounts
	Updates     []PostUpdate // net: none for posts whose events cancel each other out
	Transitions int          // events that changed a reaction; others repeated it, or are older than its event
	Voiding     int          // events that are no reaction: VOID, UNVOID, RECOUNT
}

// VoidedUser is a user whose reactions do not count any more, or count again.
type VoidedUser struct {
	UserID uint64
	Void   bool
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

// PostUpdate is the net change of a post: its counts after the batch and how they came about, by minute and region.
type PostUpdate struct {
	PostID uint64
	Counts schema.Counts
	Deltas []schema.Delta
}

// Engine folds batches. It keeps its buffers and the voided users between batches; one goroutine uses it.
type Engine struct {
	voided map[uint64]struct{} // users whose reactions do not count

	pairOf []int32 // index in pairs and keys, by event; -1 for an event without a post
	keys   []PairKey
	pairs  []pair
	posts  []uint64
	counts []schema.Counts
	deltas []postDelta
	sorted []schema.Delta

	seed       seed
	pairIndex  index[PairKey]
	postIndex  index[uint64]
	deltaIndex index[deltaKey]
	deltaKeys  []deltaKey // of deltas
	lastDelta  []int32    // by post: index in deltas of the one used last; -1: none
	result     Result
}

type pair struct {
	schema.Pair
	post    int32 // index in posts
	known   bool  // it has a state
	changed bool
}

type postDelta struct {
	post int32 // index in posts
	schema.Delta
}

type deltaKey struct {
	minute int64
	post   int32 // index in posts
	region schema.Region
}

// Fold applies the events to the state.
func (f *Engine) Fold(events []Event, state State) (*Result, error) {
	f.assign(events)
	if err := f.load(state); err != nil {
		return nil, err
	}
	r := &f.result
	*r = Result{Voids: r.Voids[:0], Pairs: r.Pairs[:0], Counts: r.Counts[:0], Updates: r.Updates[:0]}
	for i := range events {
		if p := f.pairOf[i]; p >= 0 {
			f.apply(&f.pairs[p], &events[i])
		} else {
			f.void(&events[i])
			r.Voiding++
		}
	}
	for i := range f.pairs {
		if f.pairs[i].changed {
			r.Pairs = append(r.Pairs, PairState{f.keys[i], f.pairs[i].Pair})
		}
	}
	f.finishPosts()
	return r, nil
}

// assign finds each event's pair and pair's post by hashing: sorting tens of thousands takes several times as long.
func (f *Engine) assign(events []Event) {
	f.seed = seed{rand.Uint64(), rand.Uint64()}
	f.pairIndex.reset()
	f.postIndex.reset()
	f.deltaIndex.reset()
	f.pairOf, f.keys, f.pairs = f.pairOf[:0], f.keys[:0], f.pairs[:0]
	f.posts, f.lastDelta, f.deltas, f.deltaKeys = f.posts[:0], f.lastDelta[:0], f.deltas[:0], f.deltaKeys[:0]
	for i := range events {
		if events[i].Action.OfUser() {
			f.pairOf = append(f.pairOf, -1)
			continue
		}
		key := PairKey{events[i].PostID, events[i].UserID}
		p, ok := f.pairIndex.place(f.seed.pair(key), key, f.keys)
		if !ok {
			f.keys = append(f.keys, key)
			f.pairs = append(f.pairs, pair{post: f.assignPost(key.PostID)})
		}
		f.pairOf = append(f.pairOf, p)
	}
}

func (f *Engine) assignPost(id uint64) int32 {
	if n := len(f.keys) - 2; n >= 0 && f.keys[n].PostID == id {
		return f.pairs[n].post // the same post again: a hot one
	}
	post, ok := f.postIndex.place(f.seed.post(id), id, f.posts)
	if !ok {
		f.posts = append(f.posts, id)
		f.lastDelta = append(f.lastDelta, -1)
	}
	return post
}

func (f *Engine) load(state State) error {
	f.counts = slices.Grow(f.counts[:0], len(f.posts))[:len(f.posts)]
	clear(f.counts)
	err := state.Pairs(f.keys, func(i int, p schema.Pair) { f.pairs[i].Pair, f.pairs[i].known = p, true })
	if err != nil {
		return err
	}
	return state.Counts(f.posts, func(i int, c schema.Counts) { f.counts[i] = c })
}

// SetVoided sets the voided users before the first batch.
func (f *Engine) SetVoided(users map[uint64]struct{}) { f.voided = users }

// void folds an event that voids a user or takes that back. It applies to an earlier reaction from the pair's next
// event on: `kudos void` sends a RECOUNT.
func (f *Engine) void(e *Event) {
	_, was := f.voided[e.UserID]
	void := e.Action == schema.Void
	switch {
	case void == was:
		return
	case !void:
		delete(f.voided, e.UserID)
	case f.voided == nil:
		f.voided = map[uint64]struct{}{e.UserID: {}}
	default:
		f.voided[e.UserID] = struct{}{}
	}
	f.result.Voids = append(f.result.Voids, VoidedUser{e.UserID, void})
}

// recount makes the pair count unless its user is voided now.
func (f *Engine) recount(p *pair, user uint64) {
	if _, void := f.voided[user]; void != p.Void {
		f.count(p, -1)
		p.Void, p.changed = void, true
		f.count(p, +1)
	}
}

// apply folds one event into the reaction: last writer wins, by event time, then by offset. It keeps time and offset
// even when the reaction stays the same, so that a late event cannot override a newer one.
func (f *Engine) apply(p *pair, e *Event) {
	if e.Action == schema.Recount {
		f.result.Voiding++
		if p.known { // or it has gone, with a rebuild
			f.recount(p, e.UserID)
		}
		return
	}
	if p.Void || len(f.voided) > 0 {
		f.recount(p, e.UserID)
	}
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
	if reaction != p.Reaction { // it is equal if the first event withdraws a reaction
		f.result.Transitions++
	}
	// A reaction is subtracted where it was counted.
	f.count(p, -1)
	p.Reaction, p.Region, p.SinceMs = reaction, e.Region, e.TimeMs
	f.count(p, +1)
}

// count adds n of the pair's reaction to the deltas of its post.
func (f *Engine) count(p *pair, n int64) {
	if p.Reaction == schema.NoReaction || p.Void {
		return
	}
	d := f.delta(p.post, schema.MinuteOf(p.SinceMs), p.Region)
	if p.Reaction == schema.Liked {
		d.Likes += n
	} else {
		d.Dislikes += n
	}
}

// delta finds or adds a post's delta; mostly it is the one used last.
func (f *Engine) delta(post int32, minute int64, region schema.Region) *postDelta {
	if i := f.lastDelta[post]; i >= 0 && f.deltas[i].Minute == minute && f.deltas[i].Region == region {
		return &f.deltas[i]
	}
	key := deltaKey{minute, post, region}
	i, ok := f.deltaIndex.place(f.seed.delta(key), key, f.deltaKeys)
	if !ok {
		f.deltaKeys = append(f.deltaKeys, key)
		f.deltas = append(f.deltas, postDelta{post, schema.Delta{Region: region, Minute: minute}})
	}
	f.lastDelta[post] = i
	return &f.deltas[i]
}

// finishPosts collects the deltas of each post, in order and without those that are zero, and records what changed.
func (f *Engine) finishPosts() {
	slices.SortFunc(f.deltas, comparePostDeltas)
	// Capacity for all, so that nothing moves while the updates point at it.
	f.sorted = slices.Grow(f.sorted[:0], len(f.deltas))
	for i := 0; i < len(f.deltas); {
		post, first := f.deltas[i].post, len(f.sorted)
		after := f.counts[post]
		for ; i < len(f.deltas) && f.deltas[i].post == post; i++ {
			d := &f.deltas[i].Delta
			if d.Likes == 0 && d.Dislikes == 0 {
				continue
			}
			f.sorted = append(f.sorted, *d)
			after.Likes += d.Likes
			after.Dislikes += d.Dislikes
		}
		if len(f.sorted) == first {
			continue
		}
		if after != f.counts[post] {
			f.result.Counts = append(f.result.Counts, PostCounts{f.posts[post], after})
		}
		deltas := slices.Clip(f.sorted[first:])
		f.result.Updates = append(f.result.Updates, PostUpdate{PostID: f.posts[post], Counts: after, Deltas: deltas})
	}
}

// comparePostDeltas compares no more than it must: there may be a delta for each event.
func comparePostDeltas(a, b postDelta) int {
	if a.post != b.post {
		return cmp.Compare(a.post, b.post)
	}
	if a.Minute != b.Minute {
		return cmp.Compare(a.Minute, b.Minute)
	}
	return bytes.Compare(a.Region[:], b.Region[:])
}
