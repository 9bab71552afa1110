package oracle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema/kudosv1"
)

// table is the state table as its topic has it.
type table struct {
	next   map[int32]int64 // offsets
	source map[int32]int64 // progress: the next offset of likes
	seq    map[int32]uint64
	pairs  map[pairKey]pair
	counts map[uint64]Count
}

func newTable() *table {
	return &table{next: map[int32]int64{}, source: map[int32]int64{}, seq: map[int32]uint64{}, pairs: map[pairKey]pair{}, counts: map[uint64]Count{}}
}

// add takes a record in. The layout of values is that of version 1, in schema/state.go: integers of 8 bytes, big-endian,
// behind a byte for the version.
func (t *table) add(rec *kgo.Record, d *Differences) {
	if err := t.read(rec); err != nil {
		d.Add("I2", "state table, partition %d offset %d: %v", rec.Partition, rec.Offset, err)
	}
}

var reactions = map[byte]kudosv1.Action{0: kudosv1.Action_UNLIKE, 1: kudosv1.Action_LIKE, 2: kudosv1.Action_DISLIKE}

func (t *table) read(rec *kgo.Record) error {
	v := rec.Value
	if v == nil { // only `kudos rebuild` takes something out; what should have stayed is missing then
		switch len(rec.Key) {
		case 16:
			delete(t.pairs, pairKey{binary.BigEndian.Uint64(rec.Key), binary.BigEndian.Uint64(rec.Key[8:])})
		case 8:
			delete(t.counts, binary.BigEndian.Uint64(rec.Key))
		}
		return nil
	}
	if len(v) == 0 || v[0] != 1 {
		return errors.New("no value of version 1")
	}
	number := func(at int) int64 { return int64(binary.BigEndian.Uint64(v[at:])) }
	switch {
	case string(rec.Key) == "_progress":
		t.source[rec.Partition] = number(1)
		t.seq[rec.Partition] = uint64(number(13))
	case len(rec.Key) == 16:
		if len(v) != 32 {
			return fmt.Errorf("a pair of %d bytes", len(v))
		}
		key := pairKey{binary.BigEndian.Uint64(rec.Key), binary.BigEndian.Uint64(rec.Key[8:])}
		p := pair{timeMs: number(2), offset: number(10), sinceMs: number(18), region: strings.TrimRight(string(v[26:]), "\x00")}
		var known bool
		if p.action, known = reactions[v[1]]; !known {
			return fmt.Errorf("reaction %d", v[1])
		}
		t.pairs[key] = p
	case len(rec.Key) == 8:
		if len(v) != 17 {
			return fmt.Errorf("counts of %d bytes", len(v))
		}
		post := binary.BigEndian.Uint64(rec.Key)
		if c := (Count{number(1), number(9)}); c == (Count{}) {
			delete(t.counts, post)
		} else {
			t.counts[post] = c
		}
	}
	return nil
}

// liked counts the pairs of each post.
func (t *table) liked() map[uint64]Count {
	counts := map[uint64]Count{}
	for k, p := range t.pairs {
		switch p.action {
		case kudosv1.Action_LIKE:
			add(counts, k.post, Count{1, 0})
		case kudosv1.Action_DISLIKE:
			add(counts, k.post, Count{0, 1})
		}
	}
	return counts
}
