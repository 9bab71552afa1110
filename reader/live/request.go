package live

import (
	"fmt"
	"net/http"
	"slices"

	"kudos/httpserver/problem"
	"kudos/reader/query"
	"kudos/schema"
)

// wanted is what a client asks for.
type wanted struct {
	posts   []uint64    // each once; or
	ranking *rankingKey // this one
	seen    *eventID    // what it has seen already; nil: nothing
}

type rankingKey struct{ region, window string }

func invalid(field, reason, format string, args ...any) *problem.Problem {
	return problem.InvalidRequest(problem.FieldError{Field: field, Reason: reason, Detail: fmt.Sprintf(format, args...)})
}

// parse reads a request, which may ask for up to maxPosts posts.
func parse(r *http.Request, maxPosts int) (*wanted, *problem.Problem) {
	const trending, window = "trending", "window"
	in := query.Read(r, query.PostIDs, trending, window, query.LastEventID)
	q := &wanted{}
	switch posts, ranking := in.Given(query.PostIDs), in.Given(trending); {
	case posts == ranking:
		in.Refuse(query.PostIDs, problem.Empty, "either post_ids or trending is to be given")
	case posts && in.Given(window):
		in.Refuse(window, problem.UnknownField, "goes with trending only")
	case posts:
		for _, post := range in.Posts(nil, maxPosts) { // one that is named twice is shown once
			if !slices.Contains(q.posts, post) {
				q.posts = append(q.posts, post)
			}
		}
	default:
		region := in.Region(trending, in.Value(trending))
		q.ranking = &rankingKey{schema.RankingRegion(region), in.Window(window)}
	}
	// An EventSource sends the header, while its address stays what it was.
	field, id := "Last-Event-ID", r.Header.Get("Last-Event-ID")
	if id == "" {
		field, id = query.LastEventID, in.Value(query.LastEventID)
	}
	if id != "" {
		var err error
		if q.seen, err = parseEventID(id); err != nil {
			in.Refuse(field, string(schema.Undecodable), "%v", err)
		}
	}
	if wrong := in.Wrong(); len(wrong) > 0 {
		return nil, problem.InvalidRequest(wrong...)
	}
	return q, nil
}
