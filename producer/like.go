package producer

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"kudos/httpserver/problem"
	"kudos/schema"
)

// react serves PUT and DELETE of a user's reaction to a post. Both ids are in the path; the body is not read.
func (p *Producer) react(reaction schema.Action) action {
	return func(w http.ResponseWriter, r *http.Request, who caller) *problem.Problem {
		e, errs := p.eventOf(r, "post_id", "user_id")
		if len(errs) > 0 {
			return problem.InvalidRequest(errs...)
		}
		e.Action = reaction
		return p.publishOne(w, r, who, e)
	}
}

// postLike serves POST to a post's likes, with the user in the body.
func (p *Producer) postLike(w http.ResponseWriter, r *http.Request, who caller) *problem.Problem {
	defaults, errs := p.eventOf(r, "post_id")
	if prob := problem.RequireMediaType(r, "application/json"); prob != nil {
		return prob
	}
	if len(errs) > 0 {
		return problem.InvalidRequest(errs...)
	}
	body, err := p.bodies.Read(w, r)
	if err != nil {
		return unwritten(problem.UnreadBody(err, p.options.MaxBodyBytes))
	}
	if prob := p.takeSlot(); prob != nil {
		return prob
	}
	defer p.requests.Release(1)
	e, prob := parseLike(body, &defaults)
	if prob != nil {
		return prob
	}
	return p.publishOne(w, r, who, e)
}

// eventOf reads what a request says outside its body: the ids in its path, and time_ms and region in its query. Without
// time_ms the event time is the time of receipt, taken before the body is read or anything waits.
func (p *Producer) eventOf(r *http.Request, ids ...string) (e schema.Event, errs []fieldError) {
	e.TimeMs = time.Now().UnixMilli()
	query := r.URL.Query()
	if s := query.Get("time_ms"); s != "" {
		ms, err := strconv.ParseInt(s, 10, 64)
		switch {
		case err != nil:
			errs = append(errs, *problem.NotANumber("time_ms", s))
		case ms < 0:
			negative := fieldError{Field: "time_ms", Reason: string(schema.NegativeTime), Detail: "is negative"}
			errs = append(errs, negative)
		case ms > 0:
			e.TimeMs = ms
		}
	}
	region := query.Get("region")
	if region == "" && p.options.RegionHeader != "" {
		region = r.Header.Get(p.options.RegionHeader)
	}
	var wellFormed bool
	e.Region, wellFormed = schema.ParseRegion(region)
	e.RegionMalformed = !wellFormed
	for _, name := range ids {
		id, wrong := problem.ParseID(name, r.PathValue(name))
		if wrong != nil {
			errs = append(errs, *wrong)
		}
		if name == "user_id" {
			e.UserID = id
		} else {
			e.PostID = id
		}
	}
	return e, errs
}

// complete fills in what the event leaves open. A malformed region stays unknown: the default does not replace it.
func complete(e, defaults *schema.Event) {
	if e.TimeMs == 0 {
		e.TimeMs = defaults.TimeMs
	}
	if e.Region == schema.UnknownRegion && !e.RegionMalformed {
		e.Region, e.RegionMalformed = defaults.Region, defaults.RegionMalformed
	}
}

// parseLike decodes the body of a POST to a post's likes: user_id, and optionally region and time_ms, in the form that
// events have.
func parseLike(raw []byte, defaults *schema.Event) (e schema.Event, prob *problem.Problem) {
	fields, wrong := problem.ParseFields(raw, "body", "user_id", "userId", "region", "time_ms", "timeMs")
	if wrong != nil {
		return e, problem.InvalidRequest(*wrong)
	}
	// The path has the post and the action. The event is then checked like one that comes from Kafka.
	fields["action"] = json.RawMessage(`"LIKE"`)
	value, err := json.Marshal(fields)
	if err == nil {
		err = schema.DecodeEvent(schema.AppendPostKey(nil, defaults.PostID), value, &e)
	}
	if err != nil {
		return e, problem.InvalidRequest(problem.FieldErrorOf(err, "body"))
	}
	complete(&e, defaults)
	return e, nil
}

// publishOne publishes one event, if the caller may send it, and answers with its position.
func (p *Producer) publishOne(
	w http.ResponseWriter, r *http.Request, who caller, e schema.Event,
) *problem.Problem {
	if wrong, wait := p.refusal(who, &e); wrong != nil {
		prob := forbidden("%s %s", wrong.Field, wrong.Detail)
		if wait > 0 {
			prob = rateLimited("%s %s", wrong.Field, wrong.Detail)
			retryIn(w, wait)
		}
		prob.Errors = []fieldError{*wrong}
		return unwritten(prob)
	}
	if e.RegionMalformed {
		p.metrics.regionMalformed.Inc()
	}
	acks, err := p.publish(r.Context(), []schema.Event{e})
	switch {
	case err != nil:
		return p.notWritten(err)
	case !acks[0].accepted:
		p.failWith(w, http.StatusServiceUnavailable, p.notAcknowledged(acks[0].err, e.TimeMs))
	default:
		problem.Answer(w, http.StatusAccepted, acks[0].position)
	}
	return nil
}
