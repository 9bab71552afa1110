package schema

import (
	"encoding/binary"
	"fmt"
)

// Version bytes start each state-table value. Version 1 (fixed sizes: a pair of 32 bytes, not some 14) is only read. A
// pair that does not count has version 3.
const (
	pairVersion1, pairVersion2, pairVersion = 1, 2, 3

	countsVersion1, countsVersion = 1, 2
	voidVersion                   = 1

	pairSize1   = 1 + 1 + 8 + 8 + 8 + len(Region{})
	countsSize1 = 1 + 8 + 8
)

// The second byte of a pair: its reaction, and flags for what follows.
const (
	pairReaction    = 0b0000_0011
	pairMoved       = 0b0000_0100 // SinceMs differs from TimeMs
	pairCountry     = 0b0000_1000 // a region of two letters
	pairSubdivision = 0b0001_0000 // a region of six bytes, zero-padded
	pairUnknown     = 0b1110_0000
)

// AppendPair appends the value of a pair: version, reaction and flags, time and offset (unsigned varints), time minus
// since (signed varint, if not zero), region (0, 2 or 6 bytes).
func AppendPair(b []byte, p *Pair) []byte {
	flags := byte(p.Reaction)
	if p.SinceMs != p.TimeMs {
		flags |= pairMoved
	}
	size := 0
	switch {
	case p.Region == Region{}:
	case p.Region == Region{p.Region[0], p.Region[1]}:
		flags, size = flags|pairCountry, 2
	default:
		flags, size = flags|pairSubdivision, len(p.Region)
	}
	version := byte(pairVersion2)
	if p.Void {
		version = pairVersion
	}
	b = append(b, version, flags)
	b = binary.AppendUvarint(b, uint64(p.TimeMs))
	b = binary.AppendUvarint(b, uint64(p.Offset))
	if p.SinceMs != p.TimeMs {
		b = binary.AppendVarint(b, p.TimeMs-p.SinceMs)
	}
	return append(b, p.Region[:size]...)
}

// DecodePair is the inverse of AppendPair.
func DecodePair(b []byte, p *Pair) error {
	if len(b) > 0 && b[0] == pairVersion1 {
		return decodePair1(b, p)
	}
	if len(b) == 0 || b[0] != pairVersion2 {
		if err := checkVersion("reaction", b, pairVersion); err != nil {
			return err
		}
	}
	r := valueReader{b: b[1:]}
	flags := r.byte()
	got := Pair{Reaction: Reaction(flags & pairReaction), Void: b[0] == pairVersion}
	got.TimeMs, got.Offset = int64(r.uvarint()), int64(r.uvarint())
	got.SinceMs = got.TimeMs
	if flags&pairMoved != 0 {
		got.SinceMs -= r.varint()
	}
	switch flags & (pairCountry | pairSubdivision) {
	case pairCountry:
		copy(got.Region[:], r.bytes(2))
	case pairSubdivision:
		copy(got.Region[:], r.bytes(len(got.Region)))
	}
	switch {
	case !r.done() || flags&pairUnknown != 0:
		return damaged("reaction of version %d has %d bytes and is malformed", b[0], len(b))
	case got.Reaction > Disliked:
		return damaged("unknown reaction %d", got.Reaction)
	}
	*p = got
	return nil
}

func decodePair1(b []byte, p *Pair) error {
	if err := checkState("reaction", b, pairVersion1, pairSize1); err != nil {
		return err
	}
	if b[1] > byte(Disliked) {
		return damaged("unknown reaction %d", b[1])
	}
	p.Reaction = Reaction(b[1])
	p.TimeMs = int64(binary.BigEndian.Uint64(b[2:]))
	p.Offset = int64(binary.BigEndian.Uint64(b[10:]))
	p.SinceMs = int64(binary.BigEndian.Uint64(b[18:]))
	p.Region = Region(b[26:])
	p.Void = false
	return nil
}

// AppendVoid appends the value of a user who was voided: version, and 1, or 0 if the user counts again.
func AppendVoid(b []byte, void bool) []byte {
	if void {
		return append(b, voidVersion, 1)
	}
	return append(b, voidVersion, 0)
}

// DecodeVoid is the inverse of AppendVoid.
func DecodeVoid(b []byte) (void bool, err error) {
	if err := checkState("voided user", b, voidVersion, 2); err != nil {
		return false, err
	}
	if b[1] > 1 {
		return false, damaged("a voided user has the unknown value %d", b[1])
	}
	return b[1] == 1, nil
}

// AppendCounts appends the value of a post's counts: version, likes, dislikes (signed varints).
func AppendCounts(b []byte, c Counts) []byte {
	b = append(b, countsVersion)
	b = binary.AppendVarint(b, c.Likes)
	return binary.AppendVarint(b, c.Dislikes)
}

// DecodeCounts is the inverse of AppendCounts.
func DecodeCounts(b []byte) (Counts, error) {
	if len(b) > 0 && b[0] == countsVersion1 {
		if err := checkState("counts", b, countsVersion1, countsSize1); err != nil {
			return Counts{}, err
		}
		return Counts{Likes: int64(binary.BigEndian.Uint64(b[1:])),
			Dislikes: int64(binary.BigEndian.Uint64(b[9:]))}, nil
	}
	if err := checkVersion("counts", b, countsVersion); err != nil {
		return Counts{}, err
	}
	r := valueReader{b: b[1:]}
	c := Counts{Likes: r.varint(), Dislikes: r.varint()}
	if !r.done() {
		return Counts{}, damaged("counts of version %d have %d bytes and are malformed", countsVersion, len(b))
	}
	return c, nil
}

func checkVersion(what string, b []byte, version byte) error {
	switch {
	case len(b) == 0:
		return damaged("%s is empty", what)
	case b[0] != version:
		reason := fmt.Sprintf("state table: %s has version %d, but this program knows only versions up to %d; %s", what,
			b[0], version, upgrade)
		return &ValueError{reason, "record", upgrade}
	}
	return nil
}

// ValueError means that a value of the state table cannot be decoded.
type ValueError struct{ reason, cause, action string }

const (
	upgrade = "run the version of kudos that wrote it, or a later one"
	restore = "find out who else writes to the state table, and restore it; or, if likes still has all events: stop " +
		"the processors, then: kudos rebuild --from-events"
)

func damaged(format string, args ...any) error {
	return &ValueError{"state table: " + fmt.Sprintf(format, args...), "state", restore}
}

func (e *ValueError) Error() string { return e.reason }

// Classify returns why a partition with such a value is parked, and what an operator does.
func (e *ValueError) Classify() (cause, action string) { return e.cause, e.action }

func checkState(what string, b []byte, version byte, size int) error {
	if err := checkVersion(what, b, version); err != nil {
		return err
	}
	if len(b) != size {
		return damaged("%s of version %d has %d bytes, not %d", what, version, len(b), size)
	}
	return nil
}

// valueReader reads the fields of a value. Missing ones read as zero; done reports it.
type valueReader struct {
	b   []byte
	bad bool
}

func (r *valueReader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *valueReader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *valueReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.skip(n)
	return v
}

func (r *valueReader) varint() int64 {
	v, n := binary.Varint(r.b)
	r.skip(n)
	return v
}

func (r *valueReader) bytes(n int) []byte {
	if n > len(r.b) {
		r.bad = true
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

// skip consumes what encoding/binary has read; n <= 0 means that it was not a valid number.
func (r *valueReader) skip(n int) {
	if n <= 0 {
		r.bad = true
		return
	}
	r.b = r.b[n:]
}

func (r *valueReader) done() bool { return !r.bad && len(r.b) == 0 }
