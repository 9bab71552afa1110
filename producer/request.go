package producer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"kudos/schema"
)

// fallback is what holds for a request's events where they say nothing themselves.
type fallback struct {
	timeMs    int64
	region    schema.Region
	malformed bool
}

// fallbackOf reads the query's time_ms and region. Time is that of receipt where the
// query gives none; it is taken first, before the body is read or anything queued.
func (p *Producer) fallbackOf(r *http.Request) (fallback, []fieldError) {
	fb := fallback{timeMs: time.Now().UnixMilli()}
	query := r.URL.Query()
	var errs []fieldError
	if s := query.Get("time_ms"); s != "" {
		ms, err := strconv.ParseInt(s, 10, 64)
		switch {
		case err != nil:
			errs = append(errs, fieldError{"time_ms", string(schema.Undecodable), fmt.Sprintf("%.40q is not a whole number in range", s)})
		case ms < 0:
			errs = append(errs, fieldError{"time_ms", string(schema.NegativeTime), "is negative"})
		case ms > 0:
			fb.timeMs = ms
		}
	}
	region := query.Get("region")
	if region == "" && p.options.RegionHeader != "" {
		region = r.Header.Get(p.options.RegionHeader)
	}
	var wellFormed bool
	fb.region, wellFormed = schema.ParseRegion(region)
	fb.malformed = !wellFormed
	return fb, errs
}

// complete fills in what the event leaves open. A region that is given and is none
// stays unknown: it is not replaced by another.
func (fb *fallback) complete(e *schema.Event) {
	if e.TimeMs == 0 {
		e.TimeMs = fb.timeMs
	}
	if e.Region == schema.UnknownRegion && !e.RegionMalformed {
		e.Region, e.RegionMalformed = fb.region, fb.malformed
	}
}

// pathID reads an id of the path: decimal, above 0, of 64 bits.
func pathID(r *http.Request, name string) (uint64, []fieldError) {
	s := r.PathValue(name)
	id, err := strconv.ParseUint(s, 10, 64)
	switch {
	case err != nil || len(s) > len("18446744073709551615"):
		return 0, []fieldError{{name, string(schema.Undecodable), fmt.Sprintf("%.40q is not a whole number in range", s)}}
	case id == 0:
		return 0, []fieldError{{name, string(schema.ZeroID), "is 0"}}
	}
	return id, nil
}

// requireMediaType says what keeps the body from being read as one of the types.
func requireMediaType(r *http.Request, types ...string) *problem {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return unsupportedMediaType("Content-Encoding %.40q is not supported; send the body as it is", coding)
	}
	given := r.Header.Get("Content-Type")
	if mediaType, _, err := mime.ParseMediaType(given); err == nil && slices.Contains(types, mediaType) {
		return nil
	}
	return unsupportedMediaType("Content-Type is %.80q; send %s", given, strings.Join(types, " or "))
}

// readProblem is the answer to a body that could not be read.
func readProblem(err error, limit int64) *problem {
	var tooMuch *http.MaxBytesError
	switch {
	case errors.As(err, &tooMuch):
		return tooLarge("the body has more than %d bytes", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return newProblem(http.StatusRequestTimeout, "request-timeout", "The body came too slowly",
			"the body did not arrive in time; nothing of it was written")
	}
	return invalidRequest(fieldError{"body", string(schema.Undecodable), "ended early; nothing of it was written"})
}

// parseLike reads the body of a POST to a post's likes: user_id, and possibly region
// and time_ms, in the form that events have.
func parseLike(body io.Reader, limit int64, postID uint64, e *schema.Event) *problem {
	raw, err := io.ReadAll(body)
	if err != nil {
		return readProblem(err, limit)
	}
	fields, fe := parseFields(raw, "body", "user_id", "userId", "region", "time_ms", "timeMs")
	if fe != nil {
		return invalidRequest(*fe)
	}
	// The path gives what the body does not have, and the event is judged as one that
	// comes by Kafka.
	fields["action"] = json.RawMessage(`"LIKE"`)
	value, err := json.Marshal(fields)
	if err == nil {
		err = schema.DecodeEvent(schema.AppendPostKey(nil, postID), value, e)
	}
	if err != nil {
		return invalidRequest(fieldErrorOf(err, "body"))
	}
	return nil
}

// parseFields reads a JSON object and refuses a field that is not known: a name
// spelled wrong would otherwise be silently without effect.
func parseFields(raw []byte, whole string, known ...string) (map[string]json.RawMessage, *fieldError) {
	if len(raw) == 0 {
		return nil, &fieldError{whole, reasonEmpty, "is empty"}
	}
	fields := make(map[string]json.RawMessage, len(known)+1)
	if err := json.Unmarshal(raw, &fields); err != nil {
		var wrongType *json.UnmarshalTypeError
		if errors.As(err, &wrongType) {
			return nil, &fieldError{whole, string(schema.Undecodable), "is not a JSON object"}
		}
		return nil, &fieldError{whole, string(schema.Undecodable), fmt.Sprintf("is not JSON: %v", err)}
	}
	if fields == nil {
		return nil, &fieldError{whole, string(schema.Undecodable), "is not a JSON object"}
	}
	unknown, found := "", false
	for name := range fields {
		if !slices.Contains(known, name) && (!found || name < unknown) { // always the same one
			unknown, found = name, true
		}
	}
	if found {
		return nil, &fieldError{fmt.Sprintf("%.40s", unknown), reasonUnknownField, "is not known here; known are " + strings.Join(known, ", ")}
	}
	return fields, nil
}
