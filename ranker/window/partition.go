package window

import (
	"slices"

	"kudos/schema"
)

// Key identifies a list.
type Key struct {
	Region schema.Region
	Window string
}

// Post is an entry of a list.
type Post struct {
	ID    uint64
	Likes int64
	Score schema.Score
	// Reached breaks ties between equal scores, the earlier first: the start of the newest bucket with likes, or for
	// all time the append time (Unix ms) of the last change.
	Reached int64
}

// Version is a list as of a window end and an offset. It is valid from that end until the next version of its key.
type Version struct {
	Key
	End    schema.Minute
	Offset int64 // in like-updates; all records before it are counted
	Posts  []Post
}

// Partition counts the likes of one partition of like-updates. It is not safe for concurrent use.
type Partition struct {
	config *Config

	// Clock is the largest event time so far, or Idle, to which ticks have advanced it. Callers must not change them.
	Clock, Idle schema.Minute
	windows     []sliding
	grids       []*grid

	cells   pool[cell]
	entries pool[entry]
	boards  pool[board]
	regions map[schema.Region]uint32 // index of each region's board
	scores  []schema.Score           // of each entry in each window

	changed  []RowKey
	row      []byte // buffer of Changed
	excluded map[uint64]bool
	shared   []uint64       // posts that are in other partitions too, sorted
	listed   map[Key][]Post // posts of the last versions; empty lists are absent

	// Versions and Marks collect output in order; the caller takes and empties them. Late counts late likes per window.
	Versions []Version
	Marks    []Mark
	Late     []int64
}

// RowKey is the key of the row of a post and region.
type RowKey struct {
	Region schema.Region
	Post   uint64
}

// NewPartition returns an empty partition.
func NewPartition(config *Config) *Partition {
	p := &Partition{config: config, Clock: schema.NoMinute, Idle: schema.NoMinute,
		windows: make([]sliding, len(config.Windows)), regions: map[schema.Region]uint32{}, excluded: map[uint64]bool{},
		listed: map[Key][]Post{}, Late: make([]int64, len(config.Windows))}
	for i, w := range config.Windows {
		g := p.gridOfSize(w.Bucket)
		if g == nil {
			g = &grid{index: len(p.grids), size: w.Bucket, oldest: schema.NoMinute}
			p.grids = append(p.grids, g)
		}
		p.windows[i] = sliding{Window: w, index: i, bit: 1 << i, end: schema.NoMinute, grid: g}
		g.windows = append(g.windows, &p.windows[i])
	}
	return p
}

// gridOfSize returns the grid with this bucket size, or nil.
func (p *Partition) gridOfSize(size int64) *grid {
	if at := slices.IndexFunc(p.grids, func(g *grid) bool { return g.size == size }); at >= 0 {
		return p.grids[at]
	}
	return nil
}

// Watermark is the clock minus the allowed lateness.
func (p *Partition) Watermark() schema.Minute {
	if p.Clock == schema.NoMinute {
		return schema.NoMinute
	}
	return p.Clock - schema.Minute(p.config.Lateness)
}

// Add counts the deltas of the update at an offset.
func (p *Partition) Add(post uint64, deltas []schema.Delta, offset int64) {
	clock := p.Clock
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

func (p *Partition) noteLate(at schema.Minute, likes int64) {
	for i := range p.windows {
		if w := &p.windows[i]; likes > 0 && w.end != schema.NoMinute && at < w.From(w.end) {
			p.Late[i] += likes
		}
	}
}

// add counts likes in each grid that still keeps their bucket.
func (p *Partition) add(region schema.Region, post uint64, at schema.Minute, likes int64) {
	e := none
	for _, g := range p.grids {
		start := floor(at, g.size)
		if start+schema.Minute(g.size) <= g.oldest {
			continue
		}
		if e == none {
			e = p.entry(region, post)
		}
		p.cell(e, g, start).likes += likes
		for _, w := range g.windows {
			if w.end != schema.NoMinute && start >= w.From(w.end) && start < w.end {
				*p.score(e, w) += schema.Score(likes) * w.weight(start, w.end)
				p.boardOf(e).dirty |= w.bit
			}
		}
	}
	if e != none {
		p.noteChanged(e)
	}
}

// Share sets whether a post is also in other partitions (because it has user buckets), starting with the next versions.
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

// Exclude removes a post from the lists, or puts it back, starting with the next versions.
func (p *Partition) Exclude(post uint64, excluded bool) {
	if p.excluded[post] == excluded {
		return
	}
	if p.excluded[post] = excluded; !excluded {
		delete(p.excluded, post)
	}
	p.changedEverywhere(post)
}

// changedEverywhere marks all lists that may contain the post as changed.
func (p *Partition) changedEverywhere(post uint64) {
	active := func(board uint32) bool {
		_, ok := p.boards.items[board].posts[post]
		return ok
	}
	if at, ok := p.regions[schema.Global]; !ok || !active(at) {
		return // not in any region then; true for most exclusions read at startup
	}
	for _, at := range p.regions {
		if active(at) {
			p.boards.items[at].dirty = 1<<len(p.windows) - 1
		}
	}
}

// Size is the number of entries (a post counts once per region and once globally), and of their buckets with likes.
func (p *Partition) Size() (posts, cells int) { return p.entries.used(), p.cells.used() }
