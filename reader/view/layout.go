package view

import (
	"encoding/binary"
	"errors"
	"fmt"

	"kudos/schema"
)

// The formats of a partition of each lane. Zeros are not stored:
//
//	c post          likes, and dislikes if there are any: zigzag varints
//	_totals         posts, likes, dislikes: zigzag varints
//
//	r post user     reaction (+ 128: does not count), region (6 bytes), since (varint): current reactions only
//
//	_progress       in both, as in the state table
//
// post and user: 8 bytes, big-endian. A new format needs a new version, to rebuild the lane in new directories.
const countsVersion, reactionsVersion = 2, 2

const (
	countsPrefix   = 'c'
	reactionPrefix = 'r'
	totalsKey      = "_totals"
)

func appendCountsKey(b []byte, post uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, countsPrefix), post)
}

func appendReactionKey(b []byte, post, user uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(append(b, reactionPrefix), post), user)
}

func userOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

func appendCounts(b []byte, c schema.Counts) []byte {
	b = binary.AppendVarint(b, c.Likes)
	if c.Dislikes != 0 {
		b = binary.AppendVarint(b, c.Dislikes)
	}
	return b
}

var errLayout = errors.New("the view on disk cannot be decoded; delete its directory (reader.state_dir)")

func decodeCounts(b []byte) (c schema.Counts, err error) {
	n, m := 0, 0
	if c.Likes, n = binary.Varint(b); n > 0 && n < len(b) {
		c.Dislikes, m = binary.Varint(b[n:])
	}
	if n <= 0 || n+m != len(b) { // m is 0 or less if there is no second number
		return schema.Counts{}, fmt.Errorf("counts of %d bytes: %w", len(b), errLayout)
	}
	return c, nil
}

const reactionFixed, reactionVoid = 1 + len(schema.Region{}), 0x80

func appendReaction(b []byte, p *schema.Pair) []byte {
	reaction := byte(p.Reaction)
	if p.Void {
		reaction |= reactionVoid
	}
	b = append(b, reaction)
	b = append(b, p.Region[:]...)
	return binary.AppendVarint(b, p.SinceMs)
}

func decodeReaction(b []byte) (r Reaction, err error) {
	if len(b) > reactionFixed {
		if since, n := binary.Varint(b[reactionFixed:]); n == len(b)-reactionFixed {
			return Reaction{Reaction: schema.Reaction(b[0] &^ reactionVoid), SinceMs: since,
				Region: schema.Region(b[1:reactionFixed]), Void: b[0]&reactionVoid != 0}, nil
		}
	}
	return r, fmt.Errorf("reaction of %d bytes: %w", len(b), errLayout)
}

func appendTotals(b []byte, t Totals) []byte {
	for _, n := range []int64{t.Posts, t.Likes, t.Dislikes} {
		b = binary.AppendVarint(b, n)
	}
	return b
}

func decodeTotals(b []byte) (t Totals, err error) {
	for _, field := range []*int64{&t.Posts, &t.Likes, &t.Dislikes} {
		n, size := binary.Varint(b)
		if size <= 0 {
			return t, fmt.Errorf("totals: %w", errLayout)
		}
		*field, b = n, b[size:]
	}
	return t, nil
}

func (t *Totals) add(before, after schema.Counts) {
	t.Likes += after.Likes - before.Likes
	t.Dislikes += after.Dislikes - before.Dislikes
	none := schema.Counts{}
	if before == none && after != none {
		t.Posts++
	}
	if before != none && after == none {
		t.Posts--
	}
}

const rankingPrefix = 'k' // precedes the key of a ranking; the store's own keys begin with _

func rankingKey(key string) []byte { return append([]byte{rankingPrefix}, key...) }

// appendStoredRanking appends a record's offset (8 bytes, big-endian) and its value.
func appendStoredRanking(b []byte, offset int64, value []byte) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(offset)), value...)
}

func decodeStoredRanking(b []byte) (offset int64, r *schema.Ranking, err error) {
	if len(b) < 8 {
		return 0, nil, fmt.Errorf("ranking of %d bytes: %w", len(b), errLayout)
	}
	r, err = schema.DecodeRanking(b[8:])
	return int64(binary.BigEndian.Uint64(b)), r, err
}
