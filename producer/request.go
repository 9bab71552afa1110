package producer

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"kudos/httpserver/problem"
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
			errs = append(errs, *problem.NotANumber("time_ms", s))
		case ms < 0:
			errs = append(errs, fieldError{Field: "time_ms", Reason: string(schema.NegativeTime), Detail: "is negative"})
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

// pathIDs reads the ids of the path.
func pathIDs(r *http.Request, names ...string) (ids []uint64, errs []fieldError) {
	for _, name := range names {
		id, wrong := problem.ParseID(name, r.PathValue(name))
		if wrong != nil {
			errs = append(errs, *wrong)
		}
		ids = append(ids, id)
	}
	return ids, errs
}

// parseLike decodes the body of a POST to a post's likes: user_id, and possibly region
// and time_ms, in the form that events have.
func parseLike(raw []byte, postID uint64, e *schema.Event) *problem.Problem {
	fields, fe := problem.ParseFields(raw, "body", "user_id", "userId", "region", "time_ms", "timeMs")
	if fe != nil {
		return problem.InvalidRequest(*fe)
	}
	// The path gives what the body does not have, and the event is judged as one that
	// comes by Kafka.
	fields["action"] = json.RawMessage(`"LIKE"`)
	value, err := json.Marshal(fields)
	if err == nil {
		err = schema.DecodeEvent(schema.AppendPostKey(nil, postID), value, e)
	}
	if err != nil {
		return problem.InvalidRequest(problem.FieldErrorOf(err, "body"))
	}
	return nil
}
