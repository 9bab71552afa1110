package reader

import (
	"net/http"
	"strconv"
	"strings"

	"kudos/httpserver/problem"
	"kudos/reader/query"
	"kudos/reader/wire"
	"kudos/schema"
)

// input is what the API reads of a request.
type input struct{ *query.Input }

func read(r *http.Request, known ...string) input { return input{query.Read(r, known...)} }

// refusal is nil, or has all that is wrong.
func (in input) refusal() error {
	if wrong := in.Wrong(); len(wrong) > 0 {
		return invalid(wrong...)
	}
	return nil
}

// Names in queries.
const (
	minOffset = "min_offset"
	maxOffset = 1<<63 - 2 // one more can still be said
)

// someHome is the partition of a place that does not name it.
const someHome = -1

// minOffset reads the place of an event that the answer must cover, as the least "as of"
// that does; none if none is asked for. With one post, the partition may be left out.
func (in input) minOffset() (covered []wire.Position) {
	s := in.Value(minOffset)
	if s == "" || strings.Contains(s, ":") && !strings.Contains(s, ",") {
		return in.minOffsets()
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n > maxOffset {
		in.Add(*problem.NotANumber(minOffset, s))
		return nil
	}
	return []wire.Position{{Partition: someHome, Offset: int64(n) + 1}}
}

// minOffsets reads the places of events that the answer must cover, as the least "as of"
// that do.
func (in input) minOffsets() (covered []wire.Position) {
	s := in.Value(minOffset)
	if s == "" {
		return nil
	}
	if n := strings.Count(s, ",") + 1; n > wire.MaxPosts {
		in.Refuse(minOffset, query.TooMany, "has %d places; %d at most", n, wire.MaxPosts)
		return nil
	}
	for place := range strings.SplitSeq(s, ",") {
		partition, offset, _ := strings.Cut(place, ":")
		p, err := strconv.ParseUint(partition, 10, 31)
		o, offsetErr := strconv.ParseUint(offset, 10, 63)
		if err != nil || offsetErr != nil || o > maxOffset {
			in.Refuse(minOffset, string(schema.Undecodable), "%.40q is not partition:offset", place)
			return nil
		}
		covered = append(covered, wire.Position{Partition: int32(p), Offset: int64(o) + 1})
	}
	return covered
}
