package window

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"kudos/schema"
)

// The persistent state of a Partition is its clock, and one row per post and region.

// Changed yields the rows that have changed since the last call; a nil value means that no likes are left.
func (p *Partition) Changed() iter.Seq2[RowKey, []byte] {
	return func(yield func(RowKey, []byte) bool) {
		changed := p.changed
		p.changed = p.changed[:0]
		for _, key := range changed {
			var value []byte
			if at, ok := p.regions[key.Region]; ok {
				if e, active := p.boards.items[at].posts[key.Post]; active {
					p.entries.items[e].changed = false
					p.row = p.appendRow(p.row[:0], e)
					value = bytes.Clone(p.row)
				}
			}
			if !yield(key, value) {
				return
			}
		}
	}
}

const rowVersion = 1

// appendRow encodes the version, then for each grid: bucket size, number of cells, and bucket number and likes of each.
func (p *Partition) appendRow(b []byte, e uint32) []byte {
	b = append(b, rowVersion)
	for _, g := range p.grids {
		n := uint64(0)
		for at := p.entries.items[e].cells[g.index]; at != none; at = p.cells.items[at].next {
			n++
		}
		b = binary.AppendUvarint(b, uint64(g.size))
		b = binary.AppendUvarint(b, n)
		for at := p.entries.items[e].cells[g.index]; at != none; at = p.cells.items[at].next {
			c := &p.cells.items[at]
			b = binary.AppendVarint(b, int64(c.start)/g.size)
			b = binary.AppendVarint(b, c.likes)
		}
	}
	return b
}

var errRow = errors.New("unexpected end of data")

// LoadRow loads an earlier Partition's row, without buckets of unused sizes; LoadClock drops those that are too old.
func (p *Partition) LoadRow(key RowKey, value []byte) error {
	if len(value) == 0 || value[0] != rowVersion {
		return fmt.Errorf("row of post %d in %s has an unknown version; "+
			"run the version that wrote it, or a later one", key.Post, schema.RankingRegion(key.Region))
	}
	if !p.loadGrids(key, value[1:]) {
		return fmt.Errorf("row of post %d in %s: %w", key.Post, schema.RankingRegion(key.Region), errRow)
	}
	return nil
}

// loadGrids returns false if the row ends too early.
func (p *Partition) loadGrids(key RowKey, b []byte) bool {
	for len(b) > 0 {
		size, n := binary.Uvarint(b)
		count, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 {
			return false
		}
		b = b[n+m:]
		g := p.gridOfSize(int64(size))
		for range count {
			bucket, n := binary.Varint(b)
			likes, m := binary.Varint(b[max(n, 0):])
			if n <= 0 || m <= 0 {
				return false
			}
			b = b[n+m:]
			if g != nil {
				start := schema.Minute(bucket * g.size)
				p.cell(p.entry(key.Region, key.Post), g, start).likes += likes
				p.cell(p.entry(schema.Global, key.Post), g, start).likes += likes
			}
		}
	}
	return true
}

// Kept is the time since which all likes are kept in buckets of one size, as far as windows need them.
type Kept struct {
	Bucket int64 // size in minutes
	Since  schema.Minute
}

// Kept is stored in the clock's row.
func (p *Partition) Kept() []Kept {
	var kept []Kept
	for _, g := range p.grids {
		kept = append(kept, Kept{g.size, g.oldest})
	}
	return kept
}

// LoadClock completes the loading with clock, kept times and last lists. Lists that differ become versions.
func (p *Partition) LoadClock(clock, idle schema.Minute, kept []Kept, listed map[Key][]Post) {
	p.listed = listed
	for key := range listed {
		p.board(key.Region) // even if no row is left: then an empty list is due
	}
	if clock == schema.NoMinute {
		return
	}
	for _, g := range p.grids {
		g.oldest = ceil(clock+1, g.size) // if there were no buckets of this size
		if at := slices.IndexFunc(kept, func(k Kept) bool { return k.Bucket == g.size }); at >= 0 {
			g.oldest = kept[at].Since
		}
	}
	p.Idle = idle
	p.moveClock(clock, 0, 0) // Changed will yield the rows that no window needs anymore
	p.Marks = p.Marks[:0]
}

// Partial is a window that starts before the first like kept for it, because it was configured or extended later.
type Partial struct {
	Window   string
	Since    schema.Minute // earlier likes are missing
	Complete schema.Minute // the window end from which no likes are missing
}

// Partial returns the windows that are incomplete now.
func (p *Partition) Partial() []Partial {
	var partial []Partial
	for _, w := range p.windows {
		if since := floor(w.grid.oldest, w.grid.size); w.end != schema.NoMinute && w.From(w.end) < since {
			partial = append(partial, Partial{w.Name, since, ceil(since+schema.Minute(w.Size), w.Hop)})
		}
	}
	return partial
}
