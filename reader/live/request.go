package live

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"kudos/schema"
	"kudos/schema/problem"
)

// Why a part of a request is not valid, beyond schema's and problem's reasons.
const (
	reasonRepeated = "repeated"
	reasonTooMany  = "too_many"
)

// query is what a client asks for.
type query struct {
	posts   []uint64    // each once; or
	ranking *rankingKey // this one
	seen    *eventID    // what it has seen already; nil: nothing
}

type rankingKey struct{ region, window string }

const defaultWindow = "1h"

var windowForm = regexp.MustCompile(`^[0-9a-z]{1,16}$`)

// parameters that the route knows. Another one is refused: a name that is spelled
// wrong would otherwise be silently without effect.
var parameters = [...]string{"post_ids", "trending", "window", "last_event_id"}

func invalid(field, reason, format string, args ...any) *problem.Problem {
	return problem.InvalidRequest(problem.FieldError{Field: field, Reason: reason, Detail: fmt.Sprintf(format, args...)})
}

// parse reads a request, which may ask for up to maxPosts posts.
func parse(r *http.Request, maxPosts int) (*query, *problem.Problem) {
	params, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid("query", string(schema.Undecodable), "is not well-formed: %v", err)
	}
	if p := checkParameters(params); p != nil {
		return nil, p
	}
	q := &query{}
	var p *problem.Problem
	switch posts, trending := params.Has("post_ids"), params.Has("trending"); {
	case posts == trending:
		p = invalid("post_ids", problem.Empty, "either post_ids or trending is to be given")
	case posts && params.Has("window"):
		p = invalid("window", problem.UnknownField, "goes with trending only")
	case posts:
		q.posts, p = parsePosts(params["post_ids"], maxPosts)
	default:
		q.ranking, p = parseRanking(params)
	}
	if p != nil {
		return nil, p
	}
	// An EventSource sends the header, while its address stays what it was.
	field, id := "Last-Event-ID", r.Header.Get("Last-Event-ID")
	if id == "" {
		field, id = "last_event_id", params.Get("last_event_id")
	}
	if id != "" {
		if q.seen, err = parseEventID(id); err != nil {
			return nil, invalid(field, string(schema.Undecodable), "%v", err)
		}
	}
	return q, nil
}

// checkParameters refuses what is unknown, repeated or empty.
func checkParameters(params url.Values) *problem.Problem {
	for _, name := range slices.Sorted(maps.Keys(params)) {
		switch values := params[name]; {
		case !slices.Contains(parameters[:], name):
			return problem.InvalidRequest(*problem.Unknown(name, parameters[:]...))
		case len(values) > 1 && name != "post_ids":
			return invalid(name, reasonRepeated, "is given more than once")
		// A page may well have no event id yet.
		case values[0] == "" && name != "last_event_id":
			return invalid(name, problem.Empty, "is empty")
		}
	}
	return nil
}

// parsePosts reads ids separated by commas. One that is named twice is shown once.
func parsePosts(lists []string, most int) ([]uint64, *problem.Problem) {
	var posts []uint64
	n := 0
	for _, list := range lists {
		for s := range strings.SplitSeq(list, ",") {
			if n++; n > most {
				return nil, invalid("post_ids", reasonTooMany, "has more than %d posts", most)
			}
			post, wrong := problem.ParseID("post_ids", s)
			if wrong != nil {
				return nil, problem.InvalidRequest(*wrong)
			}
			if !slices.Contains(posts, post) {
				posts = append(posts, post)
			}
		}
	}
	return posts, nil
}

func parseRanking(params url.Values) (*rankingKey, *problem.Problem) {
	key := &rankingKey{region: schema.GlobalName, window: defaultWindow}
	if s := params.Get("trending"); !strings.EqualFold(s, schema.GlobalName) {
		region, wellFormed := schema.ParseRegion(s)
		if !wellFormed {
			return nil, invalid("trending", string(schema.Undecodable), "%.40q is no region, as DE or US-CA, nor %s", s, schema.GlobalName)
		}
		key.region = schema.RankingRegion(region)
	}
	if params.Has("window") {
		key.window = params.Get("window")
		if !windowForm.MatchString(key.window) {
			return nil, invalid("window", string(schema.Undecodable), "%.40q is not the name of a window, as %s or %s", key.window, defaultWindow, schema.LeaderboardDay)
		}
	}
	return key, nil
}
