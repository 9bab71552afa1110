package window

import (
	"cmp"
	"slices"

	"kudos/schema"
)

// Better orders posts, the better first.
func Better(a, b Post) int {
	return cmp.Or(-cmp.Compare(a.Score, b.Score), cmp.Compare(a.Reached, b.Reached), cmp.Compare(a.ID, b.ID))
}

// MakeVersions makes versions of all lists that have changed, as of the position next.
func (p *Partition) MakeVersions(next int64) {
	for i := range p.config.Windows {
		if p.ends[i] != schema.NoMinute {
			p.makeVersions(i, next)
		}
	}
}

// makeVersions makes versions of a window's lists that have changed.
func (p *Partition) makeVersions(window int, next int64) {
	bit := uint32(1) << window
	waiting := 0 // entries of boards that are dirty
	dirty := false
	for i := range p.boards.items {
		if b := &p.boards.items[i]; b.dirty&bit != 0 {
			dirty, waiting = true, waiting+len(b.entries)
			b.best = nil
		}
	}
	if !dirty {
		return
	}
	p.findBest(window, waiting)
	for at := range p.boards.items {
		b := &p.boards.items[at]
		if b.dirty&bit == 0 {
			continue
		}
		b.dirty &^= bit
		p.addShared(b, window)
		key := Key{b.region, p.config.Windows[window].Name}
		if !slices.Equal(b.best, p.listed[key]) {
			p.Versions = append(p.Versions, Version{Key: key, End: p.ends[window], Offset: next, Posts: b.best})
			p.list(key, b.best)
		}
		b.best = nil
		if len(b.entries) == 0 && b.dirty == 0 {
			p.dropBoard(uint32(at))
		}
	}
}

func (p *Partition) list(key Key, posts []Post) {
	if len(posts) == 0 {
		delete(p.listed, key)
		return
	}
	p.listed[key] = posts
}

// findBest looks through the posts that may be in the lists of dirty boards: those in
// the window's buckets, or all of the boards, whichever are fewer.
func (p *Partition) findBest(window, waiting int) {
	w, g, end := &p.config.Windows[window], &p.grids[p.gridOf[window]], p.ends[window]
	buckets := g.between(w.From(end), end)
	active := 0
	for _, b := range buckets {
		active += len(b.entries)
	}
	bit := uint32(1) << window
	if active < waiting/4 { // going by buckets meets them in no order, and some of them often
		for _, bucket := range buckets {
			for _, e := range bucket.entries {
				b := &p.boards.items[p.entries.items[e].board]
				if b.dirty&bit != 0 && p.mayBeat(b, e, window) && p.newest(b, e, window, bucket.start) {
					p.consider(b, e, window)
				}
			}
		}
		return
	}
	for i := range p.boards.items {
		if b := &p.boards.items[i]; b.dirty&bit != 0 {
			for _, e := range b.entries {
				p.consider(b, e, window)
			}
		}
	}
}

// mayBeat tells whether an entry's score is enough for the best of its board.
func (p *Partition) mayBeat(b *board, e uint32, window int) bool {
	score, n := *p.score(e, window), p.config.TopN
	return score > 0 && (len(b.best) < n || score >= b.best[n-1].Score)
}

// newest tells whether a bucket is the last in the window in which an entry has a cell,
// and the entry may still be better than the last of the best: most are liked once, and of
// equal scores those that came first are there already.
func (p *Partition) newest(b *board, e uint32, window int, start schema.Minute) bool {
	g := p.gridOf[window]
	size := p.grids[g].size
	at := p.entries.items[e].cells[g]
	for int64(p.cells.items[at].bucket)*size >= int64(p.ends[window]) {
		at = p.cells.items[at].next
	}
	c := &p.cells.items[at]
	if int64(c.bucket)*size != int64(start) {
		return false
	}
	n := p.config.TopN
	return c.likes <= 0 || len(b.best) < n || *p.score(e, window) > b.best[n-1].Score || int64(start) <= b.best[n-1].Reached
}

// consider puts an entry into the best of its board, if it belongs there.
func (p *Partition) consider(b *board, e uint32, window int) {
	if !p.mayBeat(b, e, window) {
		return
	}
	post := Post{ID: p.entries.items[e].post, Score: *p.score(e, window)}
	if p.excluded[post.ID] || p.isShared(post.ID) {
		return
	}
	if post.Likes, post.Reached = p.inWindow(e, window); post.Likes < p.config.MinLikes {
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

// addShared adds the shared posts to the best of a board, however few likes they have here:
// only the sum over all partitions tells how good they are. Those excluded leave where that is made.
func (p *Partition) addShared(b *board, window int) {
	for _, id := range p.shared {
		e, ok := b.posts[id]
		if !ok {
			continue
		}
		post := Post{ID: id, Score: *p.score(e, window)}
		if post.Likes, post.Reached = p.inWindow(e, window); post.Likes > 0 {
			b.best = append(b.best, post)
		}
	}
}

func (p *Partition) isShared(post uint64) bool {
	if len(p.shared) == 0 {
		return false
	}
	_, shared := slices.BinarySearch(p.shared, post)
	return shared
}

// Share says whether a post is in other partitions too (it has user buckets), from the next
// versions on.
func (p *Partition) Share(post uint64, shared bool) {
	at, was := slices.BinarySearch(p.shared, post)
	switch {
	case shared == was:
		return
	case shared:
		p.shared = slices.Insert(p.shared, at, post)
	default:
		p.shared = slices.Delete(p.shared, at, at+1)
	}
	p.changedEverywhere(post)
}

// inWindow is an entry's likes in a window, and the start of the newest bucket that has
// some.
func (p *Partition) inWindow(e uint32, window int) (likes, reached int64) {
	g := p.gridOf[window]
	size := p.grids[g].size
	end, found := p.ends[window], false
	from := p.config.Windows[window].From(end)
	for at := p.entries.items[e].cells[g]; at != none; at = p.cells.items[at].next {
		c := &p.cells.items[at]
		start := schema.Minute(int64(c.bucket) * size)
		if start < from {
			break
		}
		if start >= end {
			continue
		}
		if c.likes > 0 && !found {
			reached, found = int64(start), true
		}
		likes += c.likes
	}
	return likes, reached
}

// Exclude takes a post out of the lists, or puts it back, from the next versions on.
func (p *Partition) Exclude(post uint64, excluded bool) {
	if p.excluded[post] == excluded {
		return
	}
	if excluded {
		p.excluded[post] = true
	} else {
		delete(p.excluded, post)
	}
	p.changedEverywhere(post)
}

// changedEverywhere has all lists made anew that a post may be in.
func (p *Partition) changedEverywhere(post uint64) {
	if at, ok := p.regions[schema.Global]; !ok || !p.boards.items[at].has(post) {
		return // it is active nowhere; all exclusions there are come by at each start
	}
	for i := range p.boards.items {
		if b := &p.boards.items[i]; b.has(post) {
			b.dirty = 1<<len(p.config.Windows) - 1
		}
	}
}
