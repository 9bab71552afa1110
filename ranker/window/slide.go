package window

import (
	"slices"
	"sort"

	"kudos/schema"
)

type sliding struct {
	Window
	index int           // in Partition.windows
	bit   uint32        // in board.dirty
	end   schema.Minute // NoMinute without a clock
	grid  *grid
}

// grid keeps likes in buckets of one size, for all windows with that bucket size.
type grid struct {
	index   int // in Partition.grids
	size    int64
	windows []*sliding
	buckets []*bucket // by start
	// oldest is the start of the oldest window, or of the oldest likes kept: buckets that end before are dropped.
	oldest schema.Minute
}

// bucket lists the entries that have a cell in it.
type bucket struct {
	start   schema.Minute
	entries []uint32
}

const idleStep = 10 // minutes: bounds how far one step moves the clock, and so how many lists it produces

// AdvanceIdle moves the clock toward the time to, if there is a clock, while no updates arrive; next is the current
// offset. It reports whether the clock moved.
func (p *Partition) AdvanceIdle(to schema.Minute, next int64) bool {
	if p.Clock == schema.NoMinute || to <= p.Clock {
		return false
	}
	if p.cells.used() > 0 {
		to = min(to, p.Clock+idleStep)
	}
	p.Idle = to
	p.moveClock(to, next, next)
	return true
}

// moveClock advances clock and windows. next is the current offset, before that of the record that moved the clock.
func (p *Partition) moveClock(clock schema.Minute, before, next int64) {
	if clock == p.Clock {
		return
	}
	first := p.Clock == schema.NoMinute
	p.Clock = clock
	watermark := p.Watermark()
	for i := range p.windows {
		w := &p.windows[i]
		end := w.End(watermark)
		if w.end == schema.NoMinute {
			w.end = end
			p.rescore(w)
		}
		p.slideTo(w, end, next)
	}
	mark := Mark{Watermark: watermark, Offset: next, Idle: p.Idle}
	if first {
		// There are no lists for earlier ends: as of those, the partition is empty.
		mark.Offset, mark.Idle = before, schema.NoMinute
	}
	p.Marks = append(p.Marks, mark)
	p.expire()
}

// slideTo advances a window to its end at target. It produces a version of each list that changes on the way, because
// any of these ends may be the one that all partitions have reached.
func (p *Partition) slideTo(w *sliding, target schema.Minute, next int64) {
	for w.end < target {
		p.makeVersions(w, next)
		end := w.end
		w.end = min(target, w.nextChange())
		if w.weights != nil {
			p.rescore(w) // all likes have aged
			continue
		}
		for _, b := range w.grid.between(w.From(end), min(w.From(w.end), end)) {
			p.count(w, b, -1)
		}
		for _, b := range w.grid.between(max(end, w.From(w.end)), w.end) {
			p.count(w, b, 1)
		}
	}
}

// nextChange is the first end after the current one at which some list of the window changes, or far in the future.
func (w *sliding) nextChange() schema.Minute {
	change := schema.Minute(1 << 62)
	if ahead := w.grid.before(w.end); ahead < len(w.grid.buckets) { // a bucket enters
		change = w.End(w.grid.buckets[ahead].start)
	}
	if inside := w.buckets(); len(inside) > 0 { // a bucket leaves
		change = min(change, ceil(inside[0].start+schema.Minute(w.Bucket+w.Size), w.Hop))
		if w.weights != nil {
			change = w.end + schema.Minute(w.Hop)
		}
	}
	return change
}

func (p *Partition) rescore(w *sliding) {
	for _, at := range p.regions {
		b := &p.boards.items[at]
		for _, e := range b.entries {
			*p.score(e, w) = 0
		}
		b.dirty |= w.bit
	}
	for _, b := range w.buckets() {
		p.count(w, b, 1)
	}
}

// count adds the likes of a bucket to the scores of a window, or subtracts them if sign is -1.
func (p *Partition) count(w *sliding, b *bucket, sign int64) {
	for _, e := range b.entries {
		likes := p.cell(e, w.grid, b.start).likes
		if likes == 0 {
			continue
		}
		weight := schema.ScoreOne
		if sign > 0 {
			weight = w.weight(b.start, w.end)
		}
		*p.score(e, w) += schema.Score(sign*likes) * weight
		p.boardOf(e).dirty |= w.bit
	}
}

func (p *Partition) expire() {
	for _, g := range p.grids {
		oldest := g.windows[0].end
		for _, w := range g.windows {
			oldest = min(oldest, w.From(w.end))
		}
		g.oldest = max(g.oldest, oldest) // a longer window does not bring freed buckets back
		n := g.before(g.oldest - schema.Minute(g.size) + 1)
		for _, b := range g.buckets[:n] {
			p.free(g, b)
		}
		clear(g.buckets[:n])
		g.buckets = g.buckets[n:]
	}
}

// free frees the cells of the oldest bucket of a grid.
func (p *Partition) free(g *grid, b *bucket) {
	for _, e := range b.entries {
		link := &p.entries.items[e].cells[g.index]
		for schema.Minute(p.cells.items[*link].start) != b.start {
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

func (w *sliding) buckets() []*bucket { return w.grid.between(w.From(w.end), w.end) }

func (g *grid) bucketOf(start schema.Minute) *bucket {
	at := g.before(start)
	if at == len(g.buckets) || g.buckets[at].start != start {
		g.buckets = slices.Insert(g.buckets, at, &bucket{start: start})
	}
	return g.buckets[at]
}

// before is the number of buckets that start before start.
func (g *grid) before(start schema.Minute) int {
	return sort.Search(len(g.buckets), func(i int) bool { return g.buckets[i].start >= start })
}

// between returns the buckets that start in [start, end).
func (g *grid) between(start, end schema.Minute) []*bucket {
	from := g.before(start)
	return g.buckets[from:max(from, g.before(end))]
}
