package window

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"kudos/schema"
)

// The state of a Partition is its rows, a row for each post and region, and its clock.

// Changed calls each with the rows that have changed since the last call: their values,
// appended to b[:0], or nil where there is nothing any more.
func (p *Partition) Changed(b []byte, each func(key RowKey, value []byte) error) ([]byte, error) {
	for _, key := range p.changed {
		at, ok := p.regions[key.Region]
		e, active := uint32(0), false
		if ok {
			e, active = p.boards.items[at].posts[key.Post]
		}
		var value []byte
		if active {
			p.entries.items[e].changed = false
			b = p.appendRow(b[:0], e)
			value = b
		}
		if err := each(key, value); err != nil {
			return b, err
		}
	}
	p.changed = p.changed[:0]
	return b, nil
}

const rowVersion = 1

// appendRow appends an entry's cells: version; for each grid the bucket size, how many
// cells, and of each the bucket's number and the likes.
func (p *Partition) appendRow(b []byte, e uint32) []byte {
	b = append(b, rowVersion)
	for g := range p.grids {
		n := uint64(0)
		for at := p.entries.items[e].cells[g]; at != none; at = p.cells.items[at].next {
			n++
		}
		b = binary.AppendUvarint(b, uint64(p.grids[g].size))
		b = binary.AppendUvarint(b, n)
		for at := p.entries.items[e].cells[g]; at != none; at = p.cells.items[at].next {
			c := &p.cells.items[at]
			b = binary.AppendVarint(b, int64(c.bucket))
			b = binary.AppendVarint(b, c.likes)
		}
	}
	return b
}

var errRow = errors.New("it ends too early")

// LoadRow takes a row of an earlier Partition over. Buckets of sizes that no window uses
// any more are passed over, and those that are too old later, by LoadClock.
func (p *Partition) LoadRow(key RowKey, value []byte) error {
	if len(value) == 0 || value[0] != rowVersion {
		return fmt.Errorf("row of post %d in %s is of a version that this program does not know; run the version that wrote it, or a later one", key.Post, schema.RankingRegion(key.Region))
	}
	value = value[1:]
	for len(value) > 0 {
		size, n := binary.Uvarint(value)
		count, m := binary.Uvarint(value[max(n, 0):])
		if n <= 0 || m <= 0 {
			return fmt.Errorf("row of post %d in %s: %w", key.Post, schema.RankingRegion(key.Region), errRow)
		}
		value = value[n+m:]
		for range count {
			bucket, n := binary.Varint(value)
			likes, m := binary.Varint(value[max(n, 0):])
			if n <= 0 || m <= 0 {
				return fmt.Errorf("row of post %d in %s: %w", key.Post, schema.RankingRegion(key.Region), errRow)
			}
			value = value[n+m:]
			p.loadCell(key, int64(size), schema.Minute(bucket*int64(size)), likes)
		}
	}
	return nil
}

func (p *Partition) loadCell(key RowKey, size int64, start schema.Minute, likes int64) {
	for g := range p.grids {
		if p.grids[g].size != size {
			continue
		}
		for _, region := range []schema.Region{key.Region, schema.Global} {
			e := p.entry(region, key.Post)
			at := p.cell(e, g, start)
			p.cells.items[at].likes += likes
		}
	}
}

// Kept tells since when all likes are kept in buckets of a size, as far as windows need them.
type Kept struct {
	Bucket int64 // minutes
	Since  schema.Minute
}

// Kept belongs to the clock's row.
func (p *Partition) Kept() []Kept {
	var kept []Kept
	for i := range p.grids {
		kept = append(kept, Kept{p.grids[i].size, p.grids[i].oldest})
	}
	return kept
}

// LoadClock ends the loading: the clock as it was, what was kept, and the lists that were the
// last versions. All lists count as changed, and become versions where they are others.
func (p *Partition) LoadClock(clock, idle schema.Minute, kept []Kept, listed map[Key][]Post) {
	p.listed = listed
	for key := range listed {
		p.board(key.Region) // of which nothing may be left: an empty list is due
	}
	if clock == schema.NoMinute {
		return
	}
	for i := range p.grids {
		g := &p.grids[i]
		g.oldest = ceil(clock+1, g.size) // no window had buckets of this size
		if at := slices.IndexFunc(kept, func(k Kept) bool { return k.Bucket == g.size }); at >= 0 {
			g.oldest = kept[at].Since
		}
	}
	p.idle = idle
	p.moveClock(clock, 0, 0)
	p.Marks = p.Marks[:0] // made when it was moved
	// Changed are the rows of which no window needs anything any more.
}

// Partial is a window that reaches back further than likes were kept when it was set up.
type Partial struct {
	Window   string
	Since    schema.Minute // likes before are missing in it
	Complete schema.Minute // the end from which on it has all of its likes
}

// Partial tells which windows are incomplete now.
func (p *Partition) Partial() []Partial {
	var partial []Partial
	for i := range p.config.Windows {
		w, g := &p.config.Windows[i], &p.grids[p.gridOf[i]]
		if since := floor(g.oldest, g.size); p.ends[i] != schema.NoMinute && w.From(p.ends[i]) < since {
			partial = append(partial, Partial{w.Name, since, ceil(since+schema.Minute(w.Size), w.Hop)})
		}
	}
	return partial
}

// Size tells how many posts there are in all regions and in how many buckets they have
// likes.
func (p *Partition) Size() (posts, cells int) { return p.entries.used(), p.cells.used() }
