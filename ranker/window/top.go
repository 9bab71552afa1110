package window

import (
	"cmp"
	"slices"

	"kudos/schema"
)

// This file picks the best posts: their order with ties, the lists of windows, and leaderboards.

// Better compares posts; the better one sorts first.
func Better(a, b Post) int {
	return cmp.Or(-cmp.Compare(a.Score, b.Score), cmp.Compare(a.Reached, b.Reached), cmp.Compare(a.ID, b.ID))
}

// MakeVersions produces a version of every list that has changed, as of the offset next.
func (p *Partition) MakeVersions(next int64) {
	for i := range p.windows {
		if w := &p.windows[i]; w.end != schema.NoMinute {
			p.makeVersions(w, next)
		}
	}
}

func (p *Partition) makeVersions(w *sliding, next int64) {
	waiting := 0 // entries of dirty boards
	dirty := false
	for i := range p.boards.items {
		if b := &p.boards.items[i]; b.dirty&w.bit != 0 {
			dirty, waiting = true, waiting+len(b.entries)
		}
	}
	if !dirty {
		return
	}
	p.findBest(w, waiting)
	for at := range p.boards.items {
		b := &p.boards.items[at]
		if b.dirty&w.bit == 0 {
			continue
		}
		b.dirty &^= w.bit
		p.addShared(b, w)
		key := Key{b.region, w.Name}
		if !slices.Equal(b.best, p.listed[key]) {
			p.Versions = append(p.Versions, Version{Key: key, End: w.end, Offset: next, Posts: b.best})
			if p.listed[key] = b.best; len(b.best) == 0 {
				delete(p.listed, key)
			}
		}
		b.best = nil
		p.dropIfEmpty(uint32(at))
	}
}

// findBest finds the best posts of all dirty boards. It scans buckets or entries, whichever is expected to be cheaper.
func (p *Partition) findBest(w *sliding, waiting int) {
	buckets := w.buckets()
	active := 0
	for _, b := range buckets {
		active += len(b.entries)
	}
	if active < waiting/4 { // a scan by buckets has no locality and visits some posts several times
		for _, bucket := range buckets {
			for _, e := range bucket.entries {
				b := p.boardOf(e)
				if b.dirty&w.bit != 0 && p.mayBeat(b, e, w) && p.newest(b, e, w, bucket.start) {
					p.consider(b, e, w)
				}
			}
		}
		return
	}
	for i := range p.boards.items {
		if b := &p.boards.items[i]; b.dirty&w.bit != 0 {
			for _, e := range b.entries {
				p.consider(b, e, w)
			}
		}
	}
}

// mayBeat reports whether an entry's score is high enough for the best of its board.
func (p *Partition) mayBeat(b *board, e uint32, w *sliding) bool {
	score, n := *p.score(e, w), p.config.TopN
	return score > 0 && (len(b.best) < n || score >= b.best[n-1].Score)
}

// newest reports whether the bucket is the last one in the window with a cell of the entry, and the entry may still
// beat the last of the best. Most posts are liked once, and of equal scores the earlier ones are already there.
func (p *Partition) newest(b *board, e uint32, w *sliding, start schema.Minute) bool {
	at := p.entries.items[e].cells[w.grid.index]
	for schema.Minute(p.cells.items[at].start) >= w.end {
		at = p.cells.items[at].next
	}
	c := &p.cells.items[at]
	if schema.Minute(c.start) != start {
		return false
	}
	n := p.config.TopN
	return c.likes <= 0 || len(b.best) < n || *p.score(e, w) > b.best[n-1].Score || int64(start) <= b.best[n-1].Reached
}

func (p *Partition) consider(b *board, e uint32, w *sliding) {
	if !p.mayBeat(b, e, w) {
		return
	}
	post := p.inWindow(e, w)
	_, shared := slices.BinarySearch(p.shared, post.ID)
	if shared || p.excluded[post.ID] || post.Likes < p.config.MinLikes {
		return
	}
	n := p.config.TopN
	if at, _ := slices.BinarySearchFunc(b.best, post, Better); at < n {
		if len(b.best) == n {
			b.best = b.best[:n-1]
		}
		b.best = slices.Insert(b.best, at, post)
	}
}

// addShared appends the shared posts to the best of a board, however few likes they have here: only Merge knows the sum
// over all partitions. Merge also omits those that are excluded.
func (p *Partition) addShared(b *board, w *sliding) {
	for _, id := range p.shared {
		if e, active := b.posts[id]; active {
			if post := p.inWindow(e, w); post.Likes > 0 {
				b.best = append(b.best, post)
			}
		}
	}
}

func (p *Partition) inWindow(e uint32, w *sliding) Post {
	post, found := Post{ID: p.entries.items[e].post, Score: *p.score(e, w)}, false
	from := w.From(w.end)
	for at := p.entries.items[e].cells[w.grid.index]; at != none; at = p.cells.items[at].next {
		c := &p.cells.items[at]
		if schema.Minute(c.start) < from {
			break
		}
		if schema.Minute(c.start) >= w.end {
			continue
		}
		if c.likes > 0 && !found {
			post.Reached, found = int64(c.start), true
		}
		post.Likes += c.likes
	}
	return post
}

// Leaders are a region's most liked posts of all time: few, so updates are cheap. No post outside Best beats Floor.
type Leaders struct {
	Best  []Post // best first
	Floor *Post  // at least as good as every post that is not in Best; nil if there are no others
}

const spare = 2 // times a list's length that Best keeps: more posts must drop out before all are searched again

// LeaderOf is a post with its likes of all time; reached is when it reached that count (Unix ms).
func LeaderOf(post uint64, likes, reached int64) Post {
	return Post{ID: post, Likes: likes, Score: schema.Score(likes) * schema.ScoreOne, Reached: reached}
}

// Update sets the count of a post. listed reports whether the list may have changed, and members whether the set of
// posts in Best, or Floor, has changed. topN is the length of lists without excluded posts.
func (l *Leaders) Update(post Post, topN int, excluded func(post uint64) bool) (listed, members bool) {
	at := slices.IndexFunc(l.Best, func(p Post) bool { return p.ID == post.ID })
	if at >= 0 {
		l.Best = slices.Delete(l.Best, at, at+1)
	}
	if post.Likes <= 0 || l.Floor != nil && Better(post, *l.Floor) >= 0 {
		return at >= 0, at >= 0
	}
	to, _ := slices.BinarySearchFunc(l.Best, post, Better)
	l.Best = slices.Insert(l.Best, to, post)
	trimmed := l.trim(spare*topN, excluded)
	return true, at < 0 || trimmed
}

// trim shortens Best to most posts, not counting excluded ones, and sets Floor to the best post that it drops.
func (l *Leaders) trim(most int, excluded func(post uint64) bool) (trimmed bool) {
	if len(l.Best) <= most {
		return false
	}
	for i, p := range l.Best {
		if excluded(p.ID) {
			continue
		}
		if most == 0 {
			l.Floor, l.Best = new(p), l.Best[:i]
			return true
		}
		most--
	}
	return false
}

// List returns the topN best posts not excluded, with at least minLikes. ok is false if posts outside Best may belong.
func (l *Leaders) List(topN int, minLikes int64, excluded func(post uint64) bool) (list []Post, ok bool) {
	for _, post := range l.Best {
		if len(list) == topN || post.Likes < minLikes {
			return list, true
		}
		if !excluded(post.ID) {
			list = append(list, post)
		}
	}
	return list, len(list) == topN || l.Floor == nil || l.Floor.Likes < minLikes
}
