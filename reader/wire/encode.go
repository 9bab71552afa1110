package wire

import (
	"strconv"

	"kudos/schema"
)

// The bodies that are asked for most are written without reflection; a test holds them
// against encoding/json. as_of is the last member of each, so that what precedes it is
// the answer itself.

// AppendJSON appends p as encoding/json writes it.
func (p *PostLikes) AppendJSON(b []byte) []byte {
	b = appendCounts(b, p.PostID, schema.Counts{Likes: p.Likes, Dislikes: p.Dislikes})
	b = append(b, `,"as_of":`...)
	b = p.AsOf.appendJSON(b)
	return append(b, '}')
}

// AppendManyLikes appends a ManyLikes as encoding/json writes it; counts are in the
// order of posts.
func AppendManyLikes(b []byte, posts []uint64, counts []schema.Counts, asOf []Position) []byte {
	b = append(b, `{"posts":[`...)
	for i, post := range posts {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendCounts(b, post, counts[i])
		b = append(b, '}')
	}
	b = append(b, `],"as_of":[`...)
	for i, p := range asOf {
		if i > 0 {
			b = append(b, ',')
		}
		b = p.appendJSON(b)
	}
	return append(b, `]}`...)
}

// appendCounts leaves the object open.
func appendCounts(b []byte, post uint64, c schema.Counts) []byte {
	b = append(b, `{"post_id":"`...)
	b = strconv.AppendUint(b, post, 10)
	b = append(b, `","likes":`...)
	b = strconv.AppendInt(b, c.Likes, 10)
	b = append(b, `,"dislikes":`...)
	return strconv.AppendInt(b, c.Dislikes, 10)
}

func (p Position) appendJSON(b []byte) []byte {
	b = append(b, `{"partition":`...)
	b = strconv.AppendInt(b, int64(p.Partition), 10)
	b = append(b, `,"offset":`...)
	b = strconv.AppendInt(b, p.Offset, 10)
	return append(b, '}')
}

// appendText appends p as String has it.
func (p Position) appendText(b []byte) []byte {
	b = strconv.AppendInt(b, int64(p.Partition), 10)
	b = append(b, ':')
	return strconv.AppendInt(b, p.Offset, 10)
}

// PositionsText is positions in one text, with commas between.
func PositionsText(positions []Position) string {
	var room [64]byte
	b := room[:0]
	for i, p := range positions {
		if i > 0 {
			b = append(b, ',')
		}
		b = p.appendText(b)
	}
	return string(b)
}
