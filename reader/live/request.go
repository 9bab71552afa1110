package live

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kudos/schema"
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

// parse reads a request, which may ask for up to maxPosts posts.
func parse(r *http.Request, maxPosts int) (*query, *problem) {
	params, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid("query", undecodable, "is not well-formed: %v", err)
	}
	if p := checkParameters(params); p != nil {
		return nil, p
	}
	q := &query{}
	var p *problem
	switch posts, trending := params.Has("post_ids"), params.Has("trending"); {
	case posts == trending:
		p = invalid("post_ids", empty, "either post_ids or trending is to be given")
	case posts && params.Has("window"):
		p = invalid("window", unknownField, "goes with trending only")
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
			return nil, invalid(field, undecodable, "%v", err)
		}
	}
	return q, nil
}

// checkParameters refuses what is unknown, repeated or empty.
func checkParameters(params url.Values) *problem {
	for _, name := range slices.Sorted(maps.Keys(params)) {
		switch values := params[name]; {
		case !slices.Contains(parameters[:], name):
			return invalid(fmt.Sprintf("%.40s", name), unknownField, "is not known here; known are %s", strings.Join(parameters[:], ", "))
		case len(values) > 1 && name != "post_ids":
			return invalid(name, repeated, "is given more than once")
		// A page may well have no event id yet.
		case values[0] == "" && name != "last_event_id":
			return invalid(name, empty, "is empty")
		}
	}
	return nil
}

// parsePosts reads ids separated by commas. One that is named twice is shown once.
func parsePosts(lists []string, most int) ([]uint64, *problem) {
	var posts []uint64
	n := 0
	for _, list := range lists {
		for s := range strings.SplitSeq(list, ",") {
			if n++; n > most {
				return nil, invalid("post_ids", tooMany, "has more than %d posts", most)
			}
			post, err := strconv.ParseUint(s, 10, 64)
			switch {
			case err != nil || len(s) > len("18446744073709551615"):
				return nil, invalid("post_ids", undecodable, "%.40q is not a whole number in range", s)
			case post == 0:
				return nil, invalid("post_ids", string(schema.ZeroID), "has a 0")
			case !slices.Contains(posts, post):
				posts = append(posts, post)
			}
		}
	}
	return posts, nil
}

func parseRanking(params url.Values) (*rankingKey, *problem) {
	key := &rankingKey{region: schema.GlobalName, window: defaultWindow}
	if s := params.Get("trending"); !strings.EqualFold(s, schema.GlobalName) {
		region, wellFormed := schema.ParseRegion(s)
		if !wellFormed {
			return nil, invalid("trending", undecodable, "%.40q is no region, as DE or US-CA, nor %s", s, schema.GlobalName)
		}
		key.region = schema.RankingRegion(region)
	}
	if params.Has("window") {
		key.window = params.Get("window")
		if !windowForm.MatchString(key.window) {
			return nil, invalid("window", undecodable, "%.40q is not the name of a window, as %s or %s", key.window, defaultWindow, schema.LeaderboardDay)
		}
	}
	return key, nil
}
