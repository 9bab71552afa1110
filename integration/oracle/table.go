package oracle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema/kudosv1"
)

type table struct {
	next   map[int32]int64 // offsets
	source map[int32]int64 // progress: the next offset of likes
	seq    map[int32]uint64
	pairs  map[PairKey]Pair
	counts map[share]Count
	voided map[voided]bool
}

func newTable() *table {
	return &table{next: map[int32]int64{}, source: map[int32]int64{}, seq: map[int32]uint64{},
		pairs: map[PairKey]Pair{}, counts: map[share]Count{}, voided: map[voided]bool{}}
}

// share identifies a partition's part of a post: all of it, unless the post has user buckets.
type share struct {
	partition int32
	post      uint64
}

func sumOver(shares map[share]Count) map[uint64]Count {
	sums := map[uint64]Count{}
	for s, c := range shares {
		Add(sums, s.post, c)
	}
	return sums
}

// add decodes a record. The format of values is that of schema/state_value.go (pairs and counts, version 2: varints)
// and schema/state.go (progress: integers of 8 bytes, big-endian), after a version byte.
func (t *table) add(rec *kgo.Record, d *Differences) {
	if err := t.read(rec); err != nil {
		d.Add("I2", "state table, partition %d offset %d: %v", rec.Partition, rec.Offset, err)
	}
}

var reactions = map[byte]kudosv1.Action{0: kudosv1.Action_UNLIKE, 1: kudosv1.Action_LIKE, 2: kudosv1.Action_DISLIKE}

func (t *table) read(rec *kgo.Record) error {
	v := rec.Value
	if v == nil { // only `kudos rebuild` deletes; a wrong deletion is found as missing data
		switch len(rec.Key) {
		case 16:
			delete(t.pairs, PairKey{binary.BigEndian.Uint64(rec.Key), binary.BigEndian.Uint64(rec.Key[8:])})
		case 8:
			delete(t.counts, share{rec.Partition, binary.BigEndian.Uint64(rec.Key)})
		}
		return nil
	}
	switch {
	case string(rec.Key) == "_progress":
		if len(v) < 21 || v[0] < 1 || v[0] > 5 { // all versions start alike
			return errors.New("not a progress record of version 1 to 5")
		}
		t.source[rec.Partition] = int64(binary.BigEndian.Uint64(v[1:]))
		t.seq[rec.Partition] = binary.BigEndian.Uint64(v[13:])
	case len(rec.Key) == 16:
		p, err := readPair(v)
		if err != nil {
			return err
		}
		t.pairs[PairKey{binary.BigEndian.Uint64(rec.Key), binary.BigEndian.Uint64(rec.Key[8:])}] = p
	case len(rec.Key) == 8:
		if len(v) < 3 || v[0] != 2 {
			return errors.New("not counts of version 2")
		}
		likes, n := binary.Varint(v[1:])
		dislikes, k := binary.Varint(v[1+max(n, 0):])
		if n <= 0 || k <= 0 || 1+n+k != len(v) {
			return fmt.Errorf("counts of %d bytes", len(v))
		}
		put(t.counts, share{rec.Partition, binary.BigEndian.Uint64(rec.Key)}, Count{likes, dislikes})
	case len(rec.Key) == 17 && strings.HasPrefix(string(rec.Key), "\x00\x00\x00\x00\x00\x00\x00\x00v"):
		user := voided{rec.Partition, binary.BigEndian.Uint64(rec.Key[9:])}
		switch {
		case bytes.Equal(v, []byte{1, 1}):
			t.voided[user] = true
		case bytes.Equal(v, []byte{1, 0}):
			delete(t.voided, user)
		default:
			return fmt.Errorf("%#x for a voided user", v)
		}
	}
	return nil
}

// readPair decodes version 2, and 3: it does not count. The low bits of the second byte are the reaction; above them
// are flags for an explicit since time (4), and for a region of two (8) or six bytes (16).
func readPair(v []byte) (p Pair, err error) {
	if len(v) < 4 || v[0] != 2 && v[0] != 3 {
		return p, errors.New("not a reaction of version 2 or 3")
	}
	p.Void = v[0] == 3
	flags, rest := v[1], v[2:]
	var known bool
	if p.Action, known = reactions[flags&3]; !known || flags >= 32 {
		return p, fmt.Errorf("reaction and flags %#x", flags)
	}
	numbers := 2
	if flags&4 != 0 {
		numbers = 3
	}
	var got [3]uint64
	for i := range numbers {
		n := 0
		if got[i], n = binary.Uvarint(rest); n <= 0 {
			return p, fmt.Errorf("a reaction of %d bytes, truncated in its numbers", len(v))
		}
		rest = rest[n:]
	}
	before := int64(got[2] >> 1) // a signed varint: the lowest bit is the sign
	if got[2]&1 != 0 {
		before = ^before
	}
	p.TimeMs, p.Offset, p.SinceMs = int64(got[0]), int64(got[1]), int64(got[0])-before
	if want := map[byte]int{0: 0, 8: 2, 16: 6}[flags&24]; len(rest) != want || flags&24 == 24 {
		return p, fmt.Errorf("a reaction with %d bytes for its region", len(rest))
	}
	p.Region = strings.TrimRight(string(rest), "\x00")
	return p, nil
}

func (t *table) liked() map[uint64]Count {
	counts := map[uint64]Count{}
	for k, p := range t.pairs {
		Add(counts, k.Post, p.count())
	}
	return counts
}
