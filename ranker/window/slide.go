package window

import (
	"sort"

	"kudos/schema"
)

// moveClock takes the clock on, and the windows with it; next is the position, and before
// that before the record which moved the clock.
func (p *Partition) moveClock(clock schema.Minute, before, next int64) {
	if clock == p.clock {
		return
	}
	first := p.clock == schema.NoMinute
	p.clock = clock
	watermark := p.Watermark()
	for i := range p.config.Windows {
		end := p.config.Windows[i].End(watermark)
		if p.ends[i] == schema.NoMinute {
			p.ends[i] = end
			p.rescore(i)
		}
		p.slideTo(i, end, next)
	}
	mark := Mark{Watermark: watermark, Offset: next, Idle: p.idle}
	if first {
		// No lists were made for earlier ends: for those, the partition is still empty.
		mark.Offset, mark.Idle = before, schema.NoMinute
	}
	p.Marks = append(p.Marks, mark)
	p.expire()
}

// slideTo takes a window to its end at target, and makes a version of each list that
// changes on the way: the other partitions may have come to any of these ends.
func (p *Partition) slideTo(window int, target schema.Minute, next int64) {
	for p.ends[window] < target {
		end := p.ends[window]
		p.makeVersions(window, next)
		to := min(target, p.nextChange(window))
		p.ends[window] = to
		if p.config.Windows[window].weights != nil {
			p.rescore(window) // every like is older now
			continue
		}
		w, g := &p.config.Windows[window], &p.grids[p.gridOf[window]]
		for _, b := range g.between(w.From(end), min(w.From(to), end)) {
			p.count(window, b, -1)
		}
		for _, b := range g.between(max(end, w.From(to)), to) {
			p.count(window, b, 1)
		}
	}
}

// nextChange is the first end after the present one at which some list of the window
// changes; far away if there is none.
func (p *Partition) nextChange(window int) schema.Minute {
	w, g, end := &p.config.Windows[window], &p.grids[p.gridOf[window]], p.ends[window]
	const never = schema.Minute(1 << 62)
	change := never
	if ahead := g.from(end); len(ahead) > 0 { // comes in
		change = w.End(ahead[0].start)
	}
	if inside := g.between(w.From(end), end); len(inside) > 0 { // goes out
		gone := inside[0].start + schema.Minute(w.Bucket+w.Size)
		change = min(change, ceil(gone, w.Hop))
		if w.weights != nil {
			change = end + schema.Minute(w.Hop)
		}
	}
	return change
}

// count adds a bucket's likes to a window's scores, or takes them away.
func (p *Partition) count(window int, b *bucket, sign int64) {
	g := p.gridOf[window]
	w, end := &p.config.Windows[window], p.ends[window]
	for _, e := range b.entries {
		likes := p.cells.items[p.cell(e, g, b.start)].likes
		if likes == 0 {
			continue
		}
		weight := schema.ScoreOne
		if sign > 0 {
			weight = w.weight(b.start, end)
		}
		*p.score(e, window) += schema.Score(sign*likes) * weight
		p.boards.items[p.entries.items[e].board].dirty |= 1 << window
	}
}

// rescore works a window's scores out anew.
func (p *Partition) rescore(window int) {
	for i := range p.boards.items {
		b := &p.boards.items[i]
		for _, e := range b.entries {
			*p.score(e, window) = 0
		}
		if b.used() {
			b.dirty |= 1 << window
		}
	}
	w, end := &p.config.Windows[window], p.ends[window]
	for _, b := range p.grids[p.gridOf[window]].between(w.From(end), end) {
		p.count(window, b, 1)
	}
}

// expire frees what no window needs any more.
func (p *Partition) expire() {
	for i := range p.grids {
		g := &p.grids[i]
		oldest := p.ends[g.windows[0]]
		for _, w := range g.windows {
			oldest = min(oldest, p.config.Windows[w].From(p.ends[w]))
		}
		g.oldest = max(g.oldest, oldest) // what is gone does not come back with a longer window
		n := sort.Search(len(g.buckets), func(i int) bool { return g.buckets[i].start+schema.Minute(g.size) > g.oldest })
		for _, b := range g.buckets[:n] {
			p.free(i, b)
		}
		clear(g.buckets[:n])
		g.buckets = g.buckets[n:]
	}
}

// free gives back the cells of a bucket that is the oldest of its grid.
func (p *Partition) free(g int, b *bucket) {
	number := int32(int64(b.start) / p.grids[g].size)
	for _, e := range b.entries {
		link := &p.entries.items[e].cells[g]
		for p.cells.items[*link].bucket != number {
			link = &p.cells.items[*link].next
		}
		gone := *link
		*link = p.cells.items[gone].next
		p.cells.give(gone)
		if p.entries.items[e].cells == [maxGrids]uint32{none, none} {
			p.drop(e)
		}
	}
}

// bucketOf finds or makes the bucket that begins at start.
func (g *grid) bucketOf(start schema.Minute) *bucket {
	rest := g.from(start)
	if len(rest) > 0 && rest[0].start == start {
		return rest[0]
	}
	at := len(g.buckets) - len(rest)
	g.buckets = append(g.buckets, nil)
	copy(g.buckets[at+1:], g.buckets[at:])
	g.buckets[at] = &bucket{start: start}
	return g.buckets[at]
}

// from is the buckets that begin at start or later.
func (g *grid) from(start schema.Minute) []*bucket {
	return g.buckets[sort.Search(len(g.buckets), func(i int) bool { return g.buckets[i].start >= start }):]
}

// between is the buckets that begin in [start, end).
func (g *grid) between(start, end schema.Minute) []*bucket {
	buckets := g.from(start)
	return buckets[:sort.Search(len(buckets), func(i int) bool { return buckets[i].start >= end })]
}
