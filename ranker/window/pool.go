package window

import "kudos/schema"

// cell is the likes of one post and region in one bucket. The cells of a grid entry are a linked list, newest first.
type cell struct {
	likes int64
	start int32  // of the bucket, in minutes
	next  uint32 // index of the next cell, or none
}

// entry is a post with likes in some bucket, in one region.
type entry struct {
	post    uint64
	board   uint32
	at      uint32           // index in the board's entries
	cells   [maxGrids]uint32 // first cell in each grid
	changed bool             // it is in Partition.changed
}

const (
	maxGrids = 2
	none     = ^uint32(0)
)

// board is the set of posts of one region.
type board struct {
	region  schema.Region
	posts   map[uint64]uint32 // entries by post; nil if the board is free
	entries []uint32
	dirty   uint32 // one bit for each window whose list may have changed
	best    []Post // only while a list is being built
}

// pool holds items that refer to each other by index: without pointers, the garbage collector has nothing to follow.
type pool[T any] struct {
	items []T
	free  []uint32
}

// add stores an item and returns its index.
func (p *pool[T]) add(item T) uint32 {
	if n := len(p.free); n > 0 {
		i := p.free[n-1]
		p.free = p.free[:n-1]
		p.items[i] = item
		return i
	}
	p.items = append(p.items, item)
	return uint32(len(p.items) - 1)
}

func (p *pool[T]) give(i uint32) { p.free = append(p.free, i) }

func (p *pool[T]) used() int { return len(p.items) - len(p.free) }

func (p *Partition) entry(region schema.Region, post uint64) uint32 {
	at := p.board(region)
	b := &p.boards.items[at]
	e, ok := b.posts[post]
	if !ok {
		cells := [maxGrids]uint32{none, none}
		e = p.entries.add(entry{post: post, board: at, at: uint32(len(b.entries)), cells: cells})
		b.entries = append(b.entries, e)
		b.posts[post] = e
		if need := len(p.entries.items) * len(p.windows); len(p.scores) < need {
			p.scores = append(p.scores, make([]schema.Score, need-len(p.scores))...)
		}
		clear(p.scores[int(e)*len(p.windows):][:len(p.windows)])
	}
	return e
}

func (p *Partition) score(e uint32, w *sliding) *schema.Score {
	return &p.scores[int(e)*len(p.windows)+w.index]
}

func (p *Partition) board(region schema.Region) uint32 {
	at, ok := p.regions[region]
	if !ok {
		at = p.boards.add(board{region: region, posts: map[uint64]uint32{}})
		p.regions[region] = at
	}
	return at
}

func (p *Partition) boardOf(e uint32) *board { return &p.boards.items[p.entries.items[e].board] }

// noteChanged makes Changed yield the entry's row. Entries of schema.Global have no rows.
func (p *Partition) noteChanged(e uint32) {
	entry := &p.entries.items[e]
	if b := &p.boards.items[entry.board]; b.region != schema.Global && !entry.changed {
		entry.changed = true
		p.changed = append(p.changed, RowKey{b.region, entry.post})
	}
}

func (p *Partition) drop(e uint32) {
	p.noteChanged(e)
	gone := p.entries.items[e]
	b := &p.boards.items[gone.board]
	delete(b.posts, gone.post)
	last := b.entries[len(b.entries)-1]
	b.entries[gone.at] = last
	p.entries.items[last].at = gone.at
	b.entries = b.entries[:len(b.entries)-1]
	p.entries.give(e)
	p.dropIfEmpty(gone.board)
}

// dropIfEmpty frees a board without entries, once its last (empty) lists are made.
func (p *Partition) dropIfEmpty(at uint32) {
	if b := &p.boards.items[at]; len(b.entries) == 0 && b.dirty == 0 {
		delete(p.regions, b.region)
		*b = board{}
		p.boards.give(at)
	}
}

// cell finds or creates the entry's cell in a bucket. The pointer is valid until another cell is created.
func (p *Partition) cell(e uint32, g *grid, start schema.Minute) *cell {
	before, at := none, p.entries.items[e].cells[g.index]
	for at != none && schema.Minute(p.cells.items[at].start) > start {
		before, at = at, p.cells.items[at].next
	}
	if at != none && schema.Minute(p.cells.items[at].start) == start {
		return &p.cells.items[at]
	}
	created := p.cells.add(cell{start: int32(start), next: at})
	if before == none {
		p.entries.items[e].cells[g.index] = created
	} else {
		p.cells.items[before].next = created
	}
	b := g.bucketOf(start)
	b.entries = append(b.entries, e)
	return &p.cells.items[created]
}
