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
	for at := range p.boards.items {
		b := &p.boards.items[at]
		if b.dirty&(1<<window) == 0 {
			continue
		}
		b.dirty &^= 1 << window
		key := Key{b.region, p.config.Windows[window].Name}
		if posts := p.top(b, window); !slices.Equal(posts, p.listed[key]) {
			p.Versions = append(p.Versions, Version{Key: key, End: p.ends[window], Offset: next, Posts: posts})
			p.list(key, posts)
		}
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

// top is the best posts of a board.
func (p *Partition) top(b *board, window int) []Post {
	w := &p.config.Windows[window]
	n := p.config.TopN
	var best []Post
	for _, e := range b.entries {
		score := *p.score(e, window)
		full := len(best) == n
		if score <= 0 || full && score < best[n-1].Score {
			continue
		}
		post := Post{ID: p.entries.items[e].post, Score: score}
		if w.weights == nil && int64(score/schema.ScoreOne) < p.config.MinLikes || p.excluded[post.ID] {
			continue
		}
		post.Likes, post.Reached = p.inWindow(e, window)
		if post.Likes < p.config.MinLikes {
			continue
		}
		if at, _ := slices.BinarySearchFunc(best, post, Better); at < n {
			if full {
				best = best[:n-1]
			}
			best = slices.Insert(best, at, post)
		}
	}
	return best
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
	for i := range p.boards.items {
		if b := &p.boards.items[i]; b.used() {
			if _, active := b.posts[post]; active {
				b.dirty = 1<<len(p.config.Windows) - 1
			}
		}
	}
}
