package oracle

import (
	"cmp"
	"fmt"
	"strconv"

	"kudos/schema/kudosv1"
)

// Count is likes and dislikes.
type Count struct{ Likes, Dislikes int64 }

// Cell is where a reaction counts.
type Cell struct {
	Post   uint64
	Region string
	Minute int64
}

// Hour is a row of like_hourly.
type Hour struct {
	Hour      int64 // since 1970
	Region    string
	Partition int32
}

// pairKey is somebody's reaction to a post.
type pairKey struct{ post, user uint64 }

// pair is that reaction as of now: the latest event, and since when and in which region the reaction holds.
type pair struct {
	action         kudosv1.Action
	timeMs, offset int64
	sinceMs        int64
	region         string
}

// fold is who likes what, by the log up to a position.
type fold struct {
	partitions int32
	buckets    map[uint64]int  // of posts whose users are dealt over so many
	next       map[int32]int64 // the position
	pairs      map[pairKey]pair
	homes      map[uint64]int32
}

func newFold(partitions int32) *fold {
	return &fold{partitions: partitions, next: map[int32]int64{}, pairs: map[pairKey]pair{}, homes: map[uint64]int32{}}
}

// homeOf is the partition of a user's reaction to a post.
func (f *fold) homeOf(post, user uint64) int32 {
	n := f.buckets[post]
	if n == 0 {
		return f.home(post)
	}
	bucket := partition(strconv.FormatUint(user, 10), n)
	return int32(partition(fmt.Sprintf("%d/%d", post, bucket), int(f.partitions)))
}

// home is the partition of a post without user buckets.
func (f *fold) home(post uint64) int32 {
	p, ok := f.homes[post]
	if !ok {
		p = home(post, f.partitions)
		f.homes[post] = p
	}
	return p
}

// add folds an event: the latest by time, then by offset, decides.
func (f *fold) add(e Event, offset int64) {
	k := pairKey{e.Post, e.User}
	p, known := f.pairs[k]
	if known && cmp.Or(cmp.Compare(e.TimeMs, p.timeMs), cmp.Compare(offset, p.offset)) <= 0 {
		return
	}
	if !known || p.action != e.Action {
		p.action, p.sinceMs, p.region = e.Action, e.TimeMs, e.Region
	}
	p.timeMs, p.offset = e.TimeMs, offset
	f.pairs[k] = p
}

// sums are the counts that follow from who likes what.
type sums struct {
	posts map[uint64]Count
	cells map[Cell]Count
	hours map[Hour]Count
}

func (f *fold) sums() sums {
	s := sums{posts: map[uint64]Count{}, cells: map[Cell]Count{}, hours: map[Hour]Count{}}
	for k, p := range f.pairs {
		var one Count
		switch p.action {
		case kudosv1.Action_LIKE:
			one.Likes = 1
		case kudosv1.Action_DISLIKE:
			one.Dislikes = 1
		default:
			continue
		}
		minute := p.sinceMs / 60_000
		add(s.posts, k.post, one)
		add(s.cells, Cell{k.post, p.region, minute}, one)
		add(s.hours, Hour{minute / 60, p.region, f.homeOf(k.post, k.user)}, one)
	}
	return s
}

// add adds, and keeps no zeros.
func add[K comparable](m map[K]Count, k K, c Count) {
	have := m[k]
	have.Likes, have.Dislikes = have.Likes+c.Likes, have.Dislikes+c.Dislikes
	if have == (Count{}) {
		delete(m, k)
		return
	}
	m[k] = have
}
