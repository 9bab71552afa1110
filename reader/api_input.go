package reader

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"kudos/reader/wire"
	"kudos/schema"
	"kudos/schema/problem"
)

// Why a part of a request is not valid, beyond schema's and problem's reasons.
const (
	reasonRepeated   = "repeated"
	reasonTooMany    = "too_many"
	reasonOutOfRange = "out_of_range"
)

// maxParameters is the most that a route knows.
const maxParameters = 4

// input is what a request says outside of its body, and all that is wrong with it. Only
// parameters that the route knows may be there, each once: one that is spelled wrong
// would otherwise be silently without effect.
type input struct {
	r      *http.Request
	known  []string
	values [maxParameters]string
	given  [maxParameters]bool
	wrong  []problem.FieldError
}

// listParameter may be given several times; the lists are then one.
const listParameter = "post_ids"

func read(r *http.Request, known ...string) *input {
	in := &input{r: r, known: known}
	for rest := r.URL.RawQuery; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		if pair != "" {
			in.add(pair)
		}
	}
	return in
}

func (in *input) add(pair string) {
	rawName, rawValue, _ := strings.Cut(pair, "=")
	name, err := unescape(rawName)
	if err != nil {
		in.refuse(rawName, string(schema.Undecodable), "the name of the parameter is not encoded as that of a query: %v", err)
		return
	}
	i := slices.Index(in.known, name)
	if i < 0 {
		in.wrong = append(in.wrong, *problem.Unknown(name, in.known...))
		return
	}
	value, err := unescape(rawValue)
	switch {
	case err != nil:
		in.refuse(name, string(schema.Undecodable), "is not encoded as the value of a query: %v", err)
	case value == "":
		in.refuse(name, problem.Empty, "is empty")
	case !in.given[i]:
		in.values[i] = value
	case name == listParameter:
		in.values[i] += "," + value
	default:
		in.refuse(name, reasonRepeated, "is given more than once")
	}
	in.given[i] = true
}

func unescape(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s, nil
	}
	return url.QueryUnescape(s)
}

func (in *input) refuse(field, reason, format string, args ...any) {
	in.wrong = append(in.wrong, problem.FieldError{Field: fmt.Sprintf("%.40s", field), Reason: reason, Detail: fmt.Sprintf(format, args...)})
}

// refusal is nil, or has all that is wrong.
func (in *input) refusal() error {
	if len(in.wrong) == 0 {
		return nil
	}
	return invalid(in.wrong...)
}

// value is a parameter's; "" if it is not given.
func (in *input) value(name string) string { return in.values[slices.Index(in.known, name)] }

// pathID reads an id of the path.
func (in *input) pathID(name string) uint64 {
	id, wrong := problem.ParseID(name, in.r.PathValue(name))
	if wrong != nil {
		in.wrong = append(in.wrong, *wrong)
	}
	return id
}

// number reads a whole number from 1 on.
func (in *input) number(name string, most, otherwise int) int {
	s := in.value(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 31)
	switch {
	case err != nil:
		in.wrong = append(in.wrong, *problem.NotANumber(name, s))
	case n < 1 || n > uint64(most):
		in.refuse(name, reasonOutOfRange, "is %d; it must be between 1 and %d", n, most)
	}
	return int(n)
}

// oneOf reads a word of several.
func (in *input) oneOf(name, otherwise string, words ...string) string {
	s := in.value(name)
	if s == "" {
		return otherwise
	}
	if !slices.Contains(words, s) {
		in.refuse(name, problem.UnknownValue, "%.40q is none of %s", s, strings.Join(words, ", "))
	}
	return s
}

// region reads a region, or global, in any case.
func (in *input) region(name, s string) schema.Region {
	if s == "" || strings.EqualFold(s, schema.GlobalName) {
		return schema.Global
	}
	region, wellFormed := schema.ParseRegion(s)
	if !wellFormed {
		in.refuse(name, string(schema.Undecodable), "%.40q is no region, as DE or US-CA, nor %s", s, schema.GlobalName)
	}
	return region
}

// Names in queries.
const (
	minOffset = "min_offset"
	maxOffset = 1<<63 - 2 // one more can still be said
)

// minOffset reads the offset of an event that the answer must cover. covered is the
// least "as of" that does: 0 if none is asked for.
func (in *input) minOffset() (covered int64) {
	s := in.value(minOffset)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n > maxOffset {
		in.wrong = append(in.wrong, *problem.NotANumber(minOffset, s))
		return 0
	}
	return int64(n) + 1
}

// minOffsets reads the places of events that the answer must cover, as the least "as of"
// that do.
func (in *input) minOffsets() (covered []wire.Position) {
	s := in.value(minOffset)
	if s == "" {
		return nil
	}
	if n := strings.Count(s, ",") + 1; n > wire.MaxPosts {
		in.refuse(minOffset, reasonTooMany, "has %d places; %d at most", n, wire.MaxPosts)
		return nil
	}
	for place := range strings.SplitSeq(s, ",") {
		partition, offset, _ := strings.Cut(place, ":")
		p, err := strconv.ParseUint(partition, 10, 31)
		o, offsetErr := strconv.ParseUint(offset, 10, 63)
		if err != nil || offsetErr != nil || o > maxOffset {
			in.refuse(minOffset, string(schema.Undecodable), "%.40q is not partition:offset", place)
			return nil
		}
		covered = append(covered, wire.Position{Partition: int32(p), Offset: int64(o) + 1})
	}
	return covered
}
