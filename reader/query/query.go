// Package query parses path and query of API and live stream requests, and collects everything that is wrong.
package query

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kudos/httpserver/problem"
	"kudos/schema"
)

// Why a part of a request is invalid, in addition to schema's and problem's reasons.
const TooMany, OutOfRange = "too_many", "out_of_range"

const maxParameters = 5 // of any route

// Input is a request's path and query, and everything that is wrong with them. Only parameters of the route are
// allowed, each once: a misspelled one would silently have no effect.
type Input struct {
	Request *http.Request
	known   []string
	values  [maxParameters]string
	given   [maxParameters]bool
	wrong   []problem.FieldError
}

// Parameters with special rules.
const (
	PostIDs     = "post_ids"      // may be repeated; the lists are joined
	LastEventID = "last_event_id" // may be empty: a page may have none yet

	Viewer = "viewer" // a user whose own reactions are asked for, too
)

// DefaultWindow is the window if the request names none.
const DefaultWindow = "1h"

// Read parses a request whose route has these parameters.
func Read(r *http.Request, known ...string) *Input {
	in := &Input{Request: r, known: known}
	for pair := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if pair != "" {
			in.add(pair)
		}
	}
	return in
}

func (in *Input) add(pair string) {
	rawName, rawValue, _ := strings.Cut(pair, "=")
	name, err := url.QueryUnescape(rawName)
	if err != nil {
		in.Refuse(rawName, string(schema.Undecodable), "the name of the parameter is not valid URL encoding: %v", err)
		return
	}
	i := slices.Index(in.known, name)
	if i < 0 {
		in.Add(problem.Unknown(name, in.known...))
		return
	}
	value, err := url.QueryUnescape(rawValue)
	switch {
	case err != nil:
		in.Refuse(name, string(schema.Undecodable), "is not valid URL encoding: %v", err)
	case value == "" && name != LastEventID:
		in.Refuse(name, problem.Empty, "is empty")
	case !in.given[i]:
		in.values[i] = value
	case name == PostIDs:
		in.values[i] += "," + value
	default:
		in.Refuse(name, problem.Repeated, "is given more than once")
	}
	in.given[i] = true
}

// Add records an error; nil is ignored.
func (in *Input) Add(wrong *problem.FieldError) {
	if wrong != nil {
		in.wrong = append(in.wrong, *wrong)
	}
}

// Refuse records an error.
func (in *Input) Refuse(field, reason, format string, args ...any) {
	field = fmt.Sprintf("%.40s", field)
	in.Add(&problem.FieldError{Field: field, Reason: reason, Detail: fmt.Sprintf(format, args...)})
}

// Wrong returns all recorded errors.
func (in *Input) Wrong() []problem.FieldError { return in.wrong }

// Given reports whether a parameter is present.
func (in *Input) Given(name string) bool { return in.given[slices.Index(in.known, name)] }

// Value returns a parameter's value, or "" if it is not given.
func (in *Input) Value(name string) string { return in.values[slices.Index(in.known, name)] }

// PathID parses an id in the path.
func (in *Input) PathID(name string) uint64 {
	id, wrong := problem.ParseID(name, in.Request.PathValue(name))
	in.Add(wrong)
	return id
}

// ID parses a parameter that is an id, 0 if it is not given.
func (in *Input) ID(name string) (id uint64) {
	if s := in.Value(name); s != "" {
		var wrong *problem.FieldError
		id, wrong = problem.ParseID(name, s)
		in.Add(wrong)
	}
	return id
}

// Number parses a whole number from 1 to most; otherwise is the default.
func (in *Input) Number(name string, most, otherwise int) int {
	s := in.Value(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 31)
	switch {
	case err != nil:
		in.Add(problem.NotANumber(name, s))
	case n < 1 || n > uint64(most):
		in.Refuse(name, OutOfRange, "is %d; it must be between 1 and %d", n, most)
	}
	return int(n)
}

// OneOf parses one of the words; otherwise is the default.
func (in *Input) OneOf(name, otherwise string, words ...string) string {
	s := in.Value(name)
	if s == "" {
		return otherwise
	}
	if !slices.Contains(words, s) {
		in.Refuse(name, problem.UnknownValue, "%.40q is not one of %s", s, strings.Join(words, ", "))
	}
	return s
}

// Region parses a region or "global", ignoring case.
func (in *Input) Region(name, s string) schema.Region {
	if s == "" || strings.EqualFold(s, schema.GlobalName) {
		return schema.Global
	}
	region, wellFormed := schema.ParseRegion(s)
	if !wellFormed {
		in.Refuse(name, string(schema.Undecodable), "%.40q is not a region like DE, US-CA or %s", s, schema.GlobalName)
	}
	return region
}

// Posts appends the ids of post_ids, at most most.
func (in *Input) Posts(ids []uint64, most int) []uint64 {
	s := in.Value(PostIDs)
	if !in.Given(PostIDs) {
		in.Refuse(PostIDs, problem.Empty, "is missing; it is a comma-separated list of post ids")
	}
	if s == "" {
		return ids
	}
	return in.IDs(ids, s, most, func(item string) string { return item })
}

// IDs appends the ids of a comma-separated list, at most most; trim removes what may surround an id.
func (in *Input) IDs(ids []uint64, list string, most int, trim func(string) string) []uint64 {
	if n := strings.Count(list, ",") + 1; n > most {
		in.Refuse(PostIDs, TooMany, "has %d posts; at most %d", n, most)
		return ids
	}
	for item := range strings.SplitSeq(list, ",") {
		id, wrong := problem.ParseID(PostIDs, trim(item))
		if wrong != nil {
			in.Add(wrong)
			return ids
		}
		ids = append(ids, id)
	}
	return ids
}

var windowForm = regexp.MustCompile(`^[0-9a-z]{1,16}$`)

// Window parses the name of a window, which may be one that no ranker computes.
func (in *Input) Window(name string) string {
	s := in.Value(name)
	if s == "" {
		return DefaultWindow
	}
	if !windowForm.MatchString(s) {
		in.Refuse(name, string(schema.Undecodable), "%.40q is not a window such as %s or %s",
			s, DefaultWindow, schema.LeaderboardDay)
	}
	return s
}
