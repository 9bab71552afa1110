package schema

import (
	"fmt"
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Delta is the net change of one post in one region and minute.
type Delta struct {
	Region          Region
	Minute          int64 // of the event time, in Unix minutes
	Likes, Dislikes int64
}

// Update is one record of like-updates, the Go form of kudosv1.LikeUpdate.
type Update struct {
	Seq          uint64
	Counts       Counts // of the post after this update
	Deltas       []Delta
	SourceOffset int64 // the end, exclusive, of the offsets in likes that the poll batch covered
	// Buckets is the number of user buckets of the post if above 1. Then Counts are those in this partition, and the
	// post's are the sum over all partitions. In a progress record (ProgressKey) it is the number of layouts so far,
	// including the current one (ProgressUpdate).
	Buckets int32
	// Moved means that the reactions were moved to or from the partition Other. No user's reaction has changed; the
	// deltas in both partitions cancel out. In a progress record it means that such a migration is in progress.
	Moved bool
	Other int32
}

// ProgressUpdate is the progress record at the end of a partition's transaction: layouts is the number of earlier
// layouts, and moving says that reactions are migrating to the current one.
func ProgressUpdate(layouts uint32, migrating bool) Update {
	return Update{Buckets: int32(layouts) + 1, Moved: migrating}
}

// Layouts is the number of earlier layouts in a ProgressUpdate.
func (u *Update) Layouts() uint32 { return uint32(max(0, u.Buckets-1)) }

const MaxDeltas = 1000 // bounds the deltas of a record; a post with more deltas gets several records

// Split yields the records of an update, each with the counts after itself. (Earlier builds wrote those after the last
// record into all of them.)
func (u Update) Split() iter.Seq[Update] {
	return func(yield func(Update) bool) {
		rest, counts := Sum(u.Deltas), u.Counts
		for u.Deltas = range slices.Chunk(u.Deltas, MaxDeltas) {
			rest = rest.Minus(Sum(u.Deltas))
			if u.Counts = counts.Minus(rest); !yield(u) {
				return
			}
		}
	}
}

// Sum returns the net change of the counts.
func Sum(deltas []Delta) (c Counts) {
	for i := range deltas {
		c.Likes, c.Dislikes = c.Likes+deltas[i].Likes, c.Dislikes+deltas[i].Dislikes
	}
	return c
}

// MinuteOf returns the Unix minute of an event time in Unix milliseconds.
func MinuteOf(timeMs int64) int64 { return timeMs / 60_000 }

const (
	fieldSeq protowire.Number = iota + 1
	fieldLikeCount
	fieldDislikeCount
	fieldDeltas
	fieldSourceOffset
	fieldBuckets
	fieldMoved
)

const (
	fieldDeltaRegion protowire.Number = iota + 1
	fieldDeltaMinute
	fieldDeltaLikes
	fieldDeltaDislikes
)

// AppendUpdate appends u as Protobuf.
func AppendUpdate(b []byte, u *Update) []byte {
	b = appendVarint(b, fieldSeq, u.Seq)
	b = appendVarint(b, fieldLikeCount, protowire.EncodeZigZag(u.Counts.Likes))
	b = appendVarint(b, fieldDislikeCount, protowire.EncodeZigZag(u.Counts.Dislikes))
	for i := range u.Deltas {
		d := &u.Deltas[i]
		b = protowire.AppendTag(b, fieldDeltas, protowire.BytesType)
		at := len(b)
		b = append(b, 0) // the length, below 128 because a delta has at most 42 bytes
		b = protowire.AppendTag(b, fieldDeltaRegion, protowire.BytesType)
		b = protowire.AppendBytes(b, d.Region.bytes())
		b = appendVarint(b, fieldDeltaMinute, uint64(d.Minute))
		b = appendVarint(b, fieldDeltaLikes, protowire.EncodeZigZag(d.Likes))
		b = appendVarint(b, fieldDeltaDislikes, protowire.EncodeZigZag(d.Dislikes))
		b[at] = byte(len(b) - at - 1)
	}
	b = appendVarint(b, fieldSourceOffset, uint64(u.SourceOffset))
	if u.Buckets > 1 {
		b = appendVarint(b, fieldBuckets, uint64(u.Buckets))
	}
	if u.Moved { // written even if 0, which is a valid partition
		b = protowire.AppendVarint(protowire.AppendTag(b, fieldMoved, protowire.VarintType), uint64(u.Other))
	}
	return b
}

// DecodeUpdate decodes a record of like-updates into u. It reuses u.Deltas.
func DecodeUpdate(b []byte, u *Update) error {
	*u = Update{Deltas: u.Deltas[:0]}
	err := eachField(b, func(num protowire.Number, v uint64) {
		switch num {
		case fieldSeq:
			u.Seq = v
		case fieldLikeCount:
			u.Counts.Likes = protowire.DecodeZigZag(v)
		case fieldDislikeCount:
			u.Counts.Dislikes = protowire.DecodeZigZag(v)
		case fieldSourceOffset:
			u.SourceOffset = int64(v)
		case fieldBuckets:
			u.Buckets = int32(v)
		case fieldMoved:
			u.Moved, u.Other = true, int32(v)
		}
	}, func(num protowire.Number, nested []byte) error {
		if num != fieldDeltas {
			return nil
		}
		u.Deltas = append(u.Deltas, Delta{Region: UnknownRegion})
		return decodeDelta(nested, &u.Deltas[len(u.Deltas)-1])
	})
	if err != nil {
		return fmt.Errorf("decoding a like update: %w", err)
	}
	return nil
}

func decodeDelta(b []byte, d *Delta) error {
	return eachField(b, func(num protowire.Number, v uint64) {
		switch num {
		case fieldDeltaMinute:
			d.Minute = int64(v)
		case fieldDeltaLikes:
			d.Likes = protowire.DecodeZigZag(v)
		case fieldDeltaDislikes:
			d.Dislikes = protowire.DecodeZigZag(v)
		}
	}, func(num protowire.Number, nested []byte) error {
		if num != fieldDeltaRegion {
			return nil
		}
		r, wellFormed := ParseRegion(nested)
		if !wellFormed {
			return fmt.Errorf("region %q is malformed", nested)
		}
		d.Region = r
		return nil
	})
}

// eachField calls onVarint and onBytes for a message's fields of these wire types; they pick the fields that they know.
// It skips fields of other types, which a later version may add.
func eachField(b []byte, onVarint func(protowire.Number, uint64), onBytes func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch typ {
		case protowire.VarintType:
			var v uint64
			if v, n = protowire.ConsumeVarint(b); n >= 0 {
				onVarint(num, v)
			}
		case protowire.BytesType:
			var v []byte
			if v, n = protowire.ConsumeBytes(b); n >= 0 {
				if err := onBytes(num, v); err != nil {
					return err
				}
			}
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
	}
	return nil
}
