package live

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"kudos/httpserver/problem"
	"kudos/reader/query"
	"kudos/reader/wire"
	"kudos/schema"
)

type wanted struct {
	posts   []uint64    // without duplicates; or
	ranking *rankingKey // this one
	seen    *eventID    // what the client has seen; nil: nothing
	viewer  uint64      // a user whose own reactions to the posts are shown, too; 0: none
	client  netip.Addr  // who asked
}

type rankingKey struct{ region, window string }

func parse(r *http.Request, maxPosts int) (*wanted, *problem.Problem) {
	const trending, window = "trending", "window"
	in := query.Read(r, query.PostIDs, trending, window, query.LastEventID, query.Viewer)
	q := &wanted{viewer: in.ID(query.Viewer)}
	switch posts, ranking := in.Given(query.PostIDs), in.Given(trending); {
	case posts == ranking:
		in.Refuse(query.PostIDs, problem.Empty, "either post_ids or trending is required")
	case posts && in.Given(window):
		in.Refuse(window, problem.UnknownField, "is valid only with trending")
	case ranking && in.Given(query.Viewer):
		in.Refuse(query.Viewer, problem.UnknownField, "is valid only with post_ids")
	case posts:
		for _, post := range in.Posts(nil, maxPosts) { // duplicates are shown once
			if !slices.Contains(q.posts, post) {
				q.posts = append(q.posts, post)
			}
		}
	default:
		region := in.Region(trending, in.Value(trending))
		q.ranking = &rankingKey{schema.RankingRegion(region), in.Window(window)}
	}
	// An EventSource that reconnects sends the header, but does not change its URL. It never reconnects after a 400, so
	// a header that is not an id counts as none: it is from another server.
	q.seen, _ = parseEventID(r.Header.Get("Last-Event-ID"))
	if id := in.Value(query.LastEventID); id != "" && q.seen == nil {
		var err error
		if q.seen, err = parseEventID(id); err != nil {
			in.Refuse(query.LastEventID, string(schema.Undecodable), "%v", err)
		}
	}
	if wrong := in.Wrong(); len(wrong) > 0 {
		return nil, problem.InvalidRequest(wrong...)
	}
	return q, nil
}

const maxEventID = 4096 // bytes. An id of MaxPosts partitions with the largest numbers is shorter

var epochForm = regexp.MustCompile(`^[0-9a-f]{8}$`)

// eventID is an event id that a client sends back: what it saw before it lost its connection.
//
//	<epoch>.<partition>:<offset>[,<partition>:<offset>…]
//
// Offsets are in likes (those of rankings in trending). Positions of one epoch mean nothing in another.
type eventID struct {
	epoch   string
	offsets map[int32]int64
}

func parseEventID(s string) (*eventID, error) {
	if len(s) > maxEventID {
		return nil, fmt.Errorf("is longer than %d bytes", maxEventID)
	}
	epoch, positions, _ := strings.Cut(s, ".")
	if !epochForm.MatchString(epoch) {
		return nil, errors.New("does not start with 8 hex digits and a dot")
	}
	id := &eventID{epoch: epoch, offsets: map[int32]int64{}}
	for position := range strings.SplitSeq(positions, ",") {
		p, ok := wire.ParsePosition(position)
		if !ok {
			return nil, fmt.Errorf("has %.40q where partition:offset is expected", position)
		}
		if _, twice := id.offsets[p.Partition]; twice {
			return nil, fmt.Errorf("has partition %d twice", p.Partition)
		}
		id.offsets[p.Partition] = p.Offset
	}
	return id, nil
}

// appendEventID appends the id that covers what a stream has sent.
func appendEventID(b []byte, epoch string, groups []*group) []byte {
	b = append(b, epoch...)
	separator := byte('.')
	for _, g := range groups {
		if g.covered < 0 {
			continue
		}
		b = wire.Position{Partition: g.partition, Offset: g.covered}.AppendTo(append(b, separator))
		separator = ','
	}
	return b
}
