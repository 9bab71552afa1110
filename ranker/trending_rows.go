package ranker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"kudos/ranker/window"
	"kudos/schema"
)

// Kinds of rows in trending-table; behind the kind:
const (
	rowVersion = "v" // versionKey: a partition's list, as it came
	rowSource  = "s" // partition: where it stands
	rowMark    = "m" // partition, watermark: where the watermark came to be so
	rowRanking = "r" // <region>/<window>: the last ranking, as published
	rowEnd     = "e" // window: the end of the last rankings
)

// versionKey orders the lists of a ranking and partition by end, then position; an exclusion
// makes another one at the same position.
type versionKey struct {
	key        window.Key
	partition  int32
	end        schema.Minute
	offset     int64
	exclusions int64
}

// versionPrefix is the kind, the ranking's key, a zero byte and the partition.
func versionPrefix(key window.Key, partition int32) []byte {
	b := append([]byte(rowVersion), schema.RankingKey(schema.RankingRegion(key.Region), key.Window)...)
	return binary.BigEndian.AppendUint32(append(b, 0), uint32(partition))
}

const versionTail = 4 + 8 + 8 + 8

func (k versionKey) append(b []byte) []byte {
	b = append(b, versionPrefix(k.key, k.partition)...)
	b = appendOrdered(b, k.end)
	b = binary.BigEndian.AppendUint64(b, uint64(k.offset))
	return binary.BigEndian.AppendUint64(b, uint64(k.exclusions))
}

// parseVersionKey reads what is behind the kind.
func parseVersionKey(b []byte) (k versionKey, err error) {
	name, tail, ok := bytes.Cut(b, []byte{0})
	region, win, both := strings.Cut(string(name), "/")
	if !ok || !both || len(tail) != versionTail {
		return k, fmt.Errorf("row key %q is none of a list", b)
	}
	if k.key, err = parseKey(region, win); err != nil {
		return k, err
	}
	k.partition = int32(binary.BigEndian.Uint32(tail))
	k.end = parseOrdered(tail[4:])
	k.offset = int64(binary.BigEndian.Uint64(tail[12:]))
	k.exclusions = int64(binary.BigEndian.Uint64(tail[20:]))
	return k, nil
}

// appendOrdered appends a time so that the bytes sort as the times do.
func appendOrdered(b []byte, m schema.Minute) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(m)^1<<63)
}

func parseOrdered(b []byte) schema.Minute { return schema.Minute(binary.BigEndian.Uint64(b) ^ 1<<63) }

func appendMinute(b []byte, m schema.Minute) []byte {
	return binary.AppendVarint(append(b, wireVersion), int64(m))
}

func partitionKey(kind string, p int32) []byte {
	return binary.BigEndian.AppendUint32([]byte(kind), uint32(p))
}

// keepSource writes where a partition stands, but for its marks.
func (w *trending) keepSource(p int32, out *output) {
	s := &w.sources[p]
	b := []byte{wireVersion, 0}
	if s.heard {
		b[1] = 1
	}
	b = appendOrigin(b, s.origin)
	for _, n := range []int64{
		int64(s.Since), int64(s.Seal.Clock), int64(s.Seal.Watermark), s.Seal.Offset, int64(s.Seal.Idle), s.Seal.Exclusions, int64(s.gap),
	} {
		b = binary.AppendVarint(b, n)
	}
	out.set(partitionKey(rowSource, p), appendLayout(b, s.layout))
}

func (w *trending) loadSource(key, value []byte) error {
	s, err := w.sourceOf(key)
	if err != nil {
		return err
	}
	r := newReader(value)
	s.heard = r.uvarint() == 1
	s.origin = r.origin()
	s.Since, s.Seal.Clock, s.Seal.Watermark, s.Seal.Offset = r.minute(), r.minute(), r.minute(), r.varint()
	s.Seal.Idle, s.Seal.Exclusions, s.gap = r.minute(), r.varint(), r.minute()
	s.layout = r.layout()
	return r.err
}

// sourceOf finds the partition that a key begins with.
func (w *trending) sourceOf(key []byte) (*source, error) {
	if len(key) < 4 || int(binary.BigEndian.Uint32(key)) >= len(w.sources) {
		return nil, fmt.Errorf("row key %x is of no partition", key)
	}
	return &w.sources[binary.BigEndian.Uint32(key)], nil
}

func markKey(p int32, watermark schema.Minute) []byte {
	return appendOrdered(partitionKey(rowMark, p), watermark)
}

func (w *trending) keepMarks(p int32, marks []window.SealedMark, out *output) {
	for _, m := range marks {
		b := binary.AppendVarint([]byte{wireVersion}, m.Offset)
		b = binary.AppendVarint(b, int64(m.Idle))
		out.set(markKey(p, m.Watermark), binary.AppendVarint(b, m.Exclusions))
	}
}

func (w *trending) dropMarks(p int32, marks []window.SealedMark, out *output) {
	for _, m := range marks {
		out.set(markKey(p, m.Watermark), nil)
	}
}

func (w *trending) loadMark(key, value []byte) error {
	s, err := w.sourceOf(key)
	if err != nil || len(key) != 4+8 {
		return fmt.Errorf("row key %x is of no mark: %w", key, err)
	}
	r := newReader(value)
	m := window.SealedMark{}
	m.Watermark, m.Offset, m.Idle, m.Exclusions = parseOrdered(key[4:]), r.varint(), r.minute(), r.varint()
	s.Marks = append(s.Marks, m)
	return r.err
}
