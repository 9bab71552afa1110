package window

import (
	"encoding/binary"
	"errors"
	"fmt"

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
			p.cells.items[p.cell(e, g, start)].likes += likes
		}
	}
}

// LoadClock ends the loading: the clock as it was, and the lists that were the last
// versions. All lists count as changed, and become versions where they are others.
func (p *Partition) LoadClock(clock, idle schema.Minute, listed map[Key][]Post) {
	p.listed = listed
	for key := range listed {
		p.board(key.Region) // of which nothing may be left: an empty list is due
	}
	if clock == schema.NoMinute {
		return
	}
	p.idle = idle
	p.moveClock(clock, 0, 0)
	p.Marks = p.Marks[:0] // made when it was moved
	for _, key := range p.changed {
		if at, ok := p.regions[key.Region]; ok {
			if e, ok := p.boards.items[at].posts[key.Post]; ok {
				p.entries.items[e].changed = false
			}
		}
	}
	p.changed = p.changed[:0]
}

// Size tells how many posts there are in all regions and in how many buckets they have
// likes.
func (p *Partition) Size() (posts, cells int) { return p.entries.used(), p.cells.used() }
