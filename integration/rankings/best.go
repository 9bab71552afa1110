package rankings

import (
	"cmp"
	"slices"

	"kudos/schema"
)

// place is a post in a window.
type place struct {
	post         uint64
	score, likes int64
	// reached says when the score was reached: the newest bucket with likes in the window, or for all time the append
	// time since which the count is what it is.
	reached int64
	// shared: other partitions have likes of the post, too.
	shared bool
}

// compare puts the better one first.
func (a place) compare(b place) int {
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.reached, b.reached), cmp.Compare(a.post, b.post))
}

// top keeps the best n places.
type top struct {
	n      int
	places []place
	best   int // so many of places are in order, and the best of those that were there
	// shared are sums over the partitions so far, of posts that are in several.
	shared   map[uint64]place
	minLikes int64
}

// add takes a place in. They are put in order when they have become too many, and by sorted.
func (t *top) add(p place) {
	if t.best == t.n && p.compare(t.places[t.best-1]) > 0 {
		return
	}
	if t.places = append(t.places, p); len(t.places) >= 4*t.n {
		t.sorted()
	}
}

// sorted are the best n, the best one first.
func (t *top) sorted() []place {
	slices.SortFunc(t.places, place.compare)
	t.places = t.places[:min(t.n, len(t.places))]
	t.best = len(t.places)
	return t.places
}

// finish is sorted, when all partitions' lists were merged.
func (t *top) finish() []place {
	for _, p := range t.shared {
		if p.likes >= t.minLikes && p.score > 0 {
			t.add(p)
		}
	}
	t.shared = nil
	return t.sorted()
}

// merge takes a partition's list in, without those excluded.
func (t *top) merge(list []place, excluded map[uint64]bool) {
	if t.shared == nil {
		t.shared = map[uint64]place{}
	}
	for _, p := range list {
		switch {
		case excluded[p.post]:
		case !p.shared:
			t.add(p)
		default:
			sum := t.shared[p.post]
			t.shared[p.post] = place{post: p.post, score: sum.score + p.score, likes: sum.likes + p.likes,
				reached: max(sum.reached, p.reached)}
		}
	}
}

type question struct {
	kind     *kind
	region   string // or global
	from, to int64
	excluded map[uint64]bool
	minLikes int64
	top      int
}

func (p *partition) best(q question) []place {
	t := top{n: q.top}
	var shared []place // all of them, excluded ones as well: who has little here may have much elsewhere
	take := func(post int32, score, likes, reached int64) {
		if p.shared[post] {
			if likes > 0 {
				shared = append(shared, place{p.posts[post], score, likes, reached, true})
			}
			return
		}
		if likes >= q.minLikes && score > 0 && !q.excluded[p.posts[post]] {
			t.add(place{p.posts[post], score, likes, reached, false})
		}
	}
	if q.kind.size > 0 {
		p.sum.of(p, q)
		for _, post := range p.sum.posts {
			a := &p.sum.all[post]
			take(post, a.score, a.likes, a.newest)
		}
		return append(t.sorted(), shared...)
	}
	totals := p.total
	if q.region != schema.GlobalName {
		totals = nil
		if r := p.regions[q.region]; r != nil {
			totals = r.total
		}
	}
	for post, s := range totals {
		take(int32(post), s.likes*one, s.likes, s.since)
	}
	return append(t.sorted(), shared...)
}

// sum adds the buckets of a window up; its memory is used again.
type sum struct {
	all   []summed // by post
	posts []int32  // that were summed up
}

type summed struct {
	score, likes int64
	newest       int64 // bucket with likes
	in           bool  // the post is in posts
}

func (s *sum) of(p *partition, q question) {
	for _, post := range s.posts {
		s.all[post] = summed{}
	}
	s.posts = s.posts[:0]
	s.all = longer(s.all, len(p.posts))
	first, last := q.from/q.kind.bucket, q.to/q.kind.bucket-1
	for name, r := range p.regions {
		if q.region != schema.GlobalName && q.region != name {
			continue
		}
		buckets := r.minutes
		if q.kind.bucket == minutesOfHour {
			buckets = r.hours
		}
		for at := first; at <= last; at++ {
			if b := buckets[at]; b != nil {
				s.add(b, at, q.kind.weights[last-at])
			}
		}
	}
}

func (s *sum) add(b *bucket, at, weight int64) {
	for slot, post := range b.posts {
		likes := b.likes[slot]
		a := &s.all[post]
		if !a.in {
			a.in = true
			s.posts = append(s.posts, post)
		}
		a.likes += likes
		a.score += likes * weight
		if likes > 0 {
			a.newest = max(a.newest, at)
		}
	}
}
