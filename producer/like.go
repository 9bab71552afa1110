package producer

import (
	"net/http"

	"kudos/httpserver/problem"
	"kudos/schema"
)

// react serves PUT and DELETE of a user's reaction to a post: both ids stand in the
// path, and the body is not read.
func (p *Producer) react(reaction schema.Action) action {
	return func(w http.ResponseWriter, r *http.Request, who caller) {
		fb, errs := p.fallbackOf(r)
		ids, idErrs := pathIDs(r, "post_id", "user_id")
		if errs = append(errs, idErrs...); len(errs) > 0 {
			p.fail(w, problem.InvalidRequest(errs...))
			return
		}
		e := schema.Event{PostID: ids[0], UserID: ids[1], Action: reaction, Region: schema.UnknownRegion}
		fb.complete(&e)
		p.publishOne(w, r, who, e)
	}
}

// postLike serves POST to a post's likes, with the user in the body.
func (p *Producer) postLike(w http.ResponseWriter, r *http.Request, who caller) {
	fb, errs := p.fallbackOf(r)
	if prob := problem.RequireMediaType(r, "application/json"); prob != nil {
		p.fail(w, prob)
		return
	}
	ids, idErrs := pathIDs(r, "post_id")
	if errs = append(errs, idErrs...); len(errs) > 0 {
		p.fail(w, problem.InvalidRequest(errs...))
		return
	}
	body, err := p.bodies.Read(w, r)
	if err != nil {
		p.fail(w, unwritten(problem.UnreadBody(err, p.options.MaxBodyBytes)))
		return
	}
	if !p.takeSlot(w) {
		return
	}
	defer p.requests.Release(1)
	var e schema.Event
	if prob := parseLike(body, ids[0], &e); prob != nil {
		p.fail(w, prob)
		return
	}
	fb.complete(&e)
	p.publishOne(w, r, who, e)
}

// publishOne writes one event, if it is the caller's to write, and answers with its place.
func (p *Producer) publishOne(w http.ResponseWriter, r *http.Request, who caller, e schema.Event) {
	if wrong, wait := p.refusal(who, &e); wrong != nil {
		p.refuse(w, wrong, wait)
		return
	}
	if e.RegionMalformed {
		p.metrics.regionMalformed.Inc()
	}
	acks, err := p.publisher.publish(r.Context(), []schema.Event{e})
	switch {
	case err != nil:
		p.fail(w, p.refused(err))
	case !acks[0].accepted:
		p.failWith(w, http.StatusServiceUnavailable, p.notAcknowledged(acks[0].err, e.TimeMs))
	default:
		problem.Answer(w, http.StatusAccepted, acks[0].position)
	}
}
