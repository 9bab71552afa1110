package window

import (
	"slices"

	"kudos/schema"
)

// Key names a list.
type Key struct {
	Region schema.Region
	Window string
}

// Post is one place of a list.
type Post struct {
	ID    uint64
	Likes int64
	Score schema.Score
	// Reached orders equal scores, the earlier first: the start of the newest bucket
	// with likes; for all time the append time (Unix ms) of the last change.
	Reached int64
}

// Version is a list as of an end of its window and a position: it holds from that end
// on until the next version of its key.
type Version struct {
	Key
	End    schema.Minute
	Offset int64 // in like-updates: what is before is counted
	Posts  []Post
}

// Mark tells that the watermark moved, at a position.
type Mark struct {
	Watermark schema.Minute
	Offset    int64
	Idle      schema.Minute
}

// Partition counts the likes of one partition of like-updates. Not for use by several
// goroutines.
type Partition struct {
	config *Config

	clock, idle schema.Minute
	ends        []schema.Minute // of each window; NoMinute without a clock
	grids       []grid
	gridOf      []int // of each window

	cells   pool[cell]
	entries pool[entry]
	boards  pool[board]
	regions map[schema.Region]uint32 // boards
	scores  []schema.Score           // of each entry and window

	changed  []RowKey
	excluded map[uint64]bool
	shared   []uint64       // posts that are in other partitions too, in order
	listed   map[Key][]Post // the last versions' posts; none if empty

	// Versions and Marks gather what was made, in order; the caller takes and empties
	// them. Late counts likes that came too late, by window.
	Versions []Version
	Marks    []Mark
	Late     []int64
}

// RowKey names the row of a post and region.
type RowKey struct {
	Region schema.Region
	Post   uint64
}

// NewPartition makes an empty one.
func NewPartition(config *Config) *Partition {
	p := &Partition{
		config: config, clock: schema.NoMinute, idle: schema.NoMinute,
		regions: map[schema.Region]uint32{}, excluded: map[uint64]bool{}, listed: map[Key][]Post{},
		Late: make([]int64, len(config.Windows)),
	}
	for i := range config.Windows {
		w := &config.Windows[i]
		p.ends = append(p.ends, schema.NoMinute)
		g := slices.IndexFunc(p.grids, func(g grid) bool { return g.size == w.Bucket })
		if g < 0 {
			g = len(p.grids)
			p.grids = append(p.grids, grid{size: w.Bucket, oldest: schema.NoMinute})
		}
		p.gridOf = append(p.gridOf, g)
		p.grids[g].windows = append(p.grids[g].windows, i)
	}
	return p
}

// Clock is the largest event time so far, or where ticks have advanced it.
func (p *Partition) Clock() schema.Minute { return p.clock }

// Idle is where ticks have advanced the clock.
func (p *Partition) Idle() schema.Minute { return p.idle }

// Watermark is the clock less the allowed lateness.
func (p *Partition) Watermark() schema.Minute {
	if p.clock == schema.NoMinute {
		return schema.NoMinute
	}
	return p.clock - schema.Minute(p.config.Lateness)
}

// Add counts the deltas of the update at an offset.
func (p *Partition) Add(post uint64, deltas []schema.Delta, offset int64) {
	clock := p.clock
	for i := range deltas {
		d := &deltas[i]
		at := schema.Minute(d.Minute)
		clock = max(clock, at)
		if d.Likes != 0 {
			p.noteLate(at, d.Likes)
			p.add(d.Region, post, at, d.Likes)
			p.add(schema.Global, post, at, d.Likes)
		}
	}
	p.moveClock(clock, offset, offset+1)
}

// idleStep bounds how many lists one step makes, in minutes.
const idleStep = 10

// AdvanceIdle moves the clock to the present while nothing comes, if there is one, or a step towards it;
// next is the position. It tells whether that changed anything.
func (p *Partition) AdvanceIdle(to schema.Minute, next int64) bool {
	if p.clock == schema.NoMinute || to <= p.clock {
		return false
	}
	if p.cells.used() > 0 {
		to = min(to, p.clock+idleStep)
	}
	p.idle = to
	p.moveClock(to, next, next)
	return true
}

func (p *Partition) noteLate(at schema.Minute, likes int64) {
	for i := range p.config.Windows {
		if end := p.ends[i]; likes > 0 && end != schema.NoMinute && at < p.config.Windows[i].From(end) {
			p.Late[i] += likes
		}
	}
}

// add counts likes of a post in a region in each grid that still keeps their bucket.
func (p *Partition) add(region schema.Region, post uint64, at schema.Minute, likes int64) {
	e := none
	for g := range p.grids {
		grid := &p.grids[g]
		start := floor(at, grid.size)
		if start+schema.Minute(grid.size) <= grid.oldest {
			continue
		}
		if e == none {
			e = p.entry(region, post)
		}
		at := p.cell(e, g, start) // first: it may move the cells
		p.cells.items[at].likes += likes
		for _, i := range grid.windows {
			w, end := &p.config.Windows[i], p.ends[i]
			if end != schema.NoMinute && start >= w.From(end) && start < end {
				*p.score(e, i) += schema.Score(likes) * w.weight(start, end)
				p.boards.items[p.entries.items[e].board].dirty |= 1 << i
			}
		}
	}
	if e != none {
		p.noteChanged(e)
	}
}

func (p *Partition) noteChanged(e uint32) {
	entry := &p.entries.items[e]
	if b := &p.boards.items[entry.board]; b.region != schema.Global && !entry.changed {
		entry.changed = true
		p.changed = append(p.changed, RowKey{b.region, entry.post})
	}
}

// score is that of an entry in a window.
func (p *Partition) score(e uint32, window int) *schema.Score {
	return &p.scores[int(e)*len(p.config.Windows)+window]
}

// entry finds or makes the entry of a post in a region.
func (p *Partition) entry(region schema.Region, post uint64) uint32 {
	at := p.board(region)
	b := &p.boards.items[at]
	e, ok := b.posts[post]
	if !ok {
		e = p.entries.take()
		p.entries.items[e] = entry{post: post, board: at, at: uint32(len(b.entries)), cells: [maxGrids]uint32{none, none}}
		b.entries = append(b.entries, e)
		b.posts[post] = e
		if need := len(p.entries.items) * len(p.config.Windows); len(p.scores) < need {
			p.scores = append(p.scores, make([]schema.Score, need-len(p.scores))...)
		}
		for i := range p.config.Windows {
			*p.score(e, i) = 0
		}
	}
	return e
}

// board finds or makes the board of a region.
func (p *Partition) board(region schema.Region) uint32 {
	at, ok := p.regions[region]
	if !ok {
		at = p.boards.take()
		p.regions[region] = at
		p.boards.items[at] = board{region: region, posts: map[uint64]uint32{}}
	}
	return at
}

// drop forgets an entry that has no cells left, and a board without entries.
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
	if len(b.entries) == 0 && b.dirty == 0 {
		p.dropBoard(gone.board)
	}
}

// dropBoard is for boards whose last (empty) lists are out.
func (p *Partition) dropBoard(at uint32) {
	b := &p.boards.items[at]
	delete(p.regions, b.region)
	*b = board{}
	p.boards.give(at)
}

// cell finds or makes an entry's cell in a bucket, and returns its index.
func (p *Partition) cell(e uint32, g int, start schema.Minute) uint32 {
	number := int32(int64(start) / p.grids[g].size)
	before, at := none, p.entries.items[e].cells[g]
	for at != none && p.cells.items[at].bucket > number {
		before, at = at, p.cells.items[at].next
	}
	if at != none && p.cells.items[at].bucket == number {
		return at
	}
	made := p.cells.take()
	p.cells.items[made] = cell{bucket: number, next: at}
	if before == none {
		p.entries.items[e].cells[g] = made
	} else {
		p.cells.items[before].next = made
	}
	b := p.grids[g].bucketOf(start)
	b.entries = append(b.entries, e)
	return made
}
