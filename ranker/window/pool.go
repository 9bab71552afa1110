package window

import "kudos/schema"

// cell is the likes of a post and region in one bucket. The cells of an entry in a grid
// are linked, the newest first.
type cell struct {
	likes  int64
	bucket int32  // start of the bucket / size of the bucket
	next   uint32 // cell; none at the end
}

// entry is a post in a region that has likes in some bucket.
type entry struct {
	post  uint64
	board uint32
	at    uint32           // place in the board's entries
	cells [maxGrids]uint32 // first cell in each grid
	// changed: it is in Partition.changed already.
	changed bool
}

const (
	maxGrids = 2
	none     = ^uint32(0)
)

// pool holds things of one kind, which know each other by index: no pointers for the
// garbage collector to follow, however many there are.
type pool[T any] struct {
	items []T
	free  []uint32
}

// take returns the index of a zero item.
func (p *pool[T]) take() uint32 {
	if n := len(p.free); n > 0 {
		i := p.free[n-1]
		p.free = p.free[:n-1]
		var zero T
		p.items[i] = zero
		return i
	}
	var zero T
	p.items = append(p.items, zero)
	return uint32(len(p.items) - 1)
}

func (p *pool[T]) give(i uint32) { p.free = append(p.free, i) }

// used is how many items are in use.
func (p *pool[T]) used() int { return len(p.items) - len(p.free) }

// grid keeps likes in buckets of one size, for all windows that use that size.
type grid struct {
	size    int64
	windows []int     // indexes into Config.Windows
	buckets []*bucket // sorted by start
	// oldest is where the oldest window begins, or what is kept: what ends before is not.
	oldest schema.Minute
}

// bucket lists the entries that have a cell in it.
type bucket struct {
	start   schema.Minute
	entries []uint32
}

// board is the posts of one region.
type board struct {
	region  schema.Region
	posts   map[uint64]uint32 // entries by post
	entries []uint32
	dirty   uint32 // a bit for each window whose list may have changed
	best    []Post // while a list is being made
}

// has tells whether a post is active there.
func (b *board) has(post uint64) bool {
	_, active := b.posts[post]
	return active
}

// used tells a board from one that was given back.
func (b *board) used() bool { return b.posts != nil }
