package oracle

import (
	"cmp"
	"fmt"
	"strconv"

	"kudos/schema/kudosv1"
)

// Count is a number of likes and dislikes.
type Count struct{ Likes, Dislikes int64 }

func (c Count) plus(more Count) Count { return Count{c.Likes + more.Likes, c.Dislikes + more.Dislikes} }

// Cell is what a reaction counts for.
type Cell struct {
	Post   uint64
	Region string
	Minute int64
}

// Hour is a row of like_hourly.
type Hour struct {
	Hour      int64 // hours since 1970
	Region    string
	Partition int32
}

// PairKey identifies the reaction of one user on one post.
type PairKey struct{ Post, User uint64 }

// Pair is that reaction: the latest event, and since when and in which region the reaction holds.
type Pair struct {
	Action                  kudosv1.Action
	TimeMs, Offset, SinceMs int64
	Region                  string
	Void                    bool
}

// count returns what the reaction adds to the counts of its post.
func (p Pair) count() (c Count) {
	switch {
	case p.Void:
	case p.Action == kudosv1.Action_LIKE:
		c.Likes = 1
	case p.Action == kudosv1.Action_DISLIKE:
		c.Dislikes = 1
	}
	return c
}

// voided identifies a user whose reactions in a partition do not count.
type voided struct {
	partition int32
	user      uint64
}

// Fold holds the current reactions, folded from the log up to a position.
type Fold struct {
	partitions int32
	buckets    map[uint64]int  // number of user buckets, by post
	next       map[int32]int64 // the position
	Pairs      map[PairKey]Pair
	voided     map[voided]bool
	owners     map[uint64]int32
}

// NewFold returns the fold of an empty log.
func NewFold(partitions int32) *Fold {
	return &Fold{partitions: partitions, next: map[int32]int64{}, Pairs: map[PairKey]Pair{}, voided: map[voided]bool{},
		owners: map[uint64]int32{}}
}

func (f *Fold) partitionOf(post, user uint64) int32 {
	n := f.buckets[post]
	if n == 0 {
		return f.PartitionOf(post)
	}
	bucket := partition(strconv.FormatUint(user, 10), n)
	return int32(partition(fmt.Sprintf("%d/%d", post, bucket), int(f.partitions)))
}

// PartitionOf returns the partition of a post without user buckets.
func (f *Fold) PartitionOf(post uint64) int32 {
	p, ok := f.owners[post]
	if !ok {
		p = owner(post, f.partitions)
		f.owners[post] = p
	}
	return p
}

// OfUser reports whether the event voids a user in its partition, or takes that back.
func (e Event) OfUser() bool {
	return e.Action == kudosv1.Action_VOID || e.Action == kudosv1.Action_UNVOID
}

// Void folds such an event.
func (f *Fold) Void(partition int32, e Event) {
	if e.Action == kudosv1.Action_VOID {
		f.voided[voided{partition, e.User}] = true
	} else {
		delete(f.voided, voided{partition, e.User})
	}
}

// Voided returns the users whose reactions in a partition do not count.
func (f *Fold) Voided(partition int32) (users []uint64) {
	for v := range f.voided {
		if v.partition == partition {
			users = append(users, v.user)
		}
	}
	return users
}

// Add folds an event: last writer wins, by event time, then by offset. It returns what changes in the post's counts.
// Each event of a pair, even a late one, decides whether it counts.
func (f *Fold) Add(e Event, offset int64) Count {
	k := PairKey{e.Post, e.User}
	p, known := f.Pairs[k]
	recount := e.Action == kudosv1.Action_RECOUNT
	if recount && !known {
		return Count{}
	}
	before := p.count()
	p.Void = f.voided[voided{f.partitionOf(e.Post, e.User), e.User}]
	if late := known && cmp.Or(cmp.Compare(e.TimeMs, p.TimeMs), cmp.Compare(offset, p.Offset)) <= 0; !recount && !late {
		if !known || p.Action != e.Action {
			p.Action, p.SinceMs, p.Region = e.Action, e.TimeMs, e.Region
		}
		p.TimeMs, p.Offset = e.TimeMs, offset
	}
	f.Pairs[k] = p
	now := p.count()
	return Count{now.Likes - before.Likes, now.Dislikes - before.Dislikes}
}

// Sums are the counts derived from the reactions.
type Sums struct {
	Posts map[uint64]Count
	Cells map[Cell]Count
	Hours map[Hour]Count
}

// Sums computes them.
func (f *Fold) Sums() Sums {
	s := Sums{Posts: map[uint64]Count{}, Cells: map[Cell]Count{}, Hours: map[Hour]Count{}}
	for k, p := range f.Pairs {
		one, minute := p.count(), p.SinceMs/60_000
		Add(s.Posts, k.Post, one)
		Add(s.Cells, Cell{k.Post, p.Region, minute}, one)
		Add(s.Hours, Hour{minute / 60, p.Region, f.partitionOf(k.Post, k.User)}, one)
	}
	return s
}

// Add adds to a count, and removes zeros.
func Add[K comparable](m map[K]Count, k K, c Count) { put(m, k, m[k].plus(c)) }

func put[K comparable](m map[K]Count, k K, c Count) {
	if c == (Count{}) {
		delete(m, k)
		return
	}
	m[k] = c
}
