package rankings

import (
	"cmp"
	"slices"

	"kudos/schema"
)

type place struct {
	post         uint64
	score, likes int64
	// reached is the newest bucket with likes in the window; for all time, the append time of the count's last change.
	reached int64
	// shared: other partitions have likes of the post too.
	shared bool
}

func (a place) compare(b place) int {
	return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.reached, b.reached), cmp.Compare(a.post, b.post))
}

type top struct {
	n      int
	places []place
	best   int // this many leading places are sorted, and are the best of those added until then
	// shared are sums, over the partitions merged so far, of posts in several partitions.
	shared   map[uint64]place
	minLikes int64
}

// add adds a place. Places are sorted when there are too many, and by sorted.
func (t *top) add(p place) {
	if t.best == t.n && p.compare(t.places[t.best-1]) > 0 {
		return
	}
	if t.places = append(t.places, p); len(t.places) >= 4*t.n {
		t.sorted()
	}
}

func (t *top) sorted() []place {
	slices.SortFunc(t.places, place.compare)
	t.places = t.places[:min(t.n, len(t.places))]
	t.best = len(t.places)
	return t.places
}

func (t *top) finish() []place {
	for _, p := range t.shared {
		if p.likes >= t.minLikes && p.score > 0 {
			t.add(p)
		}
	}
	t.shared = nil
	return t.sorted()
}

// merge adds a partition's list, without excluded posts.
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
	var shared []place // all, even excluded ones and those with few likes here
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

// sum adds up the buckets of a window; its memory is reused.
type sum struct {
	all   []summed // by post
	posts []int32  // posts in all
}

type summed struct {
	score, likes int64
	newest       int64 // newest bucket with likes
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
		likes, a := b.likes[slot], &s.all[post]
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
