package producer

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"time"

	"kudos/httpserver"
	"kudos/httpserver/problem"
	"kudos/schema"
)

// batchResult answers a batch. If no line was accepted, or Kafka did not acknowledge all, it is part of a problem.
type batchResult struct {
	Accepted int `json:"accepted"` // acknowledged by Kafka
	Rejected int `json:"rejected"` // not events, or not the caller's to send
	Failed   int `json:"failed"`   // not acknowledged by Kafka: repeat them
	// FirstUnacceptedLine is the first line that failed. Every line before it was accepted or rejected.
	FirstUnacceptedLine int         `json:"first_unaccepted_line,omitempty"`
	Lines               []batchLine `json:"lines"`
}

// batchLine is one line of a batch with its result: its position in Kafka, or what is wrong with it.
type batchLine struct {
	Line        int `json:"line"` // from 1
	*position       // if accepted
	*fieldError     // otherwise
	event       schema.Event
}

type batchProblem struct {
	*problem.Problem
	batchResult
}

type unacknowledgedBatch struct {
	unacknowledged
	batchResult
}

// postBatch serves POST of many likes. It reads the whole body, then takes its slots, then publishes, so that a request
// that is invalid as a whole is rejected before anything is written.
func (p *Producer) postBatch(w http.ResponseWriter, r *http.Request, who caller) *problem.Problem {
	defaults, errs := p.eventOf(r)
	prob := problem.RequireMediaType(r, "application/x-ndjson", "application/ndjson", "application/jsonl")
	if prob != nil {
		return prob
	}
	query := r.URL.Query()
	shown := query.Get("lines")
	if query.Has("lines") && shown != "all" && shown != "errors" {
		errs = append(errs, fieldError{Field: "lines", Reason: problem.UnknownValue, Detail: "must be all or errors"})
	}
	if len(errs) > 0 {
		return problem.InvalidRequest(errs...)
	}
	body, err := p.batchBodies.Read(w, r, who.address)
	if err != nil {
		return unwritten(problem.UnreadBody(err, p.options.MaxBatchBytes))
	}
	for _, slots := range []*httpserver.Slots{p.batches, p.requests} {
		if prob := p.takeSlot(slots, who.address); prob != nil {
			return prob
		}
		defer slots.Return(who.address, 1)
	}

	lines, ok := parseBatch(body, p.options.MaxBatchLines, &defaults)
	switch {
	case !ok:
		return unwritten(problem.TooLarge("the batch has more than %d lines", p.options.MaxBatchLines))
	case len(lines) == 0:
		return problem.InvalidRequest(fieldError{Field: "body", Reason: problem.Empty, Detail: "has no lines"})
	}
	return p.publishBatch(w, r, who, lines, defaults.TimeMs, shown == "errors")
}

// parseBatch parses NDJSON: one event per line, in the JSON form of the likes topic. Empty lines are skipped, but
// numbered. A bad line is reported and does not affect the others. ok is false if there are more than maxLines.
func parseBatch(body []byte, maxLines int, defaults *schema.Event) (lines []batchLine, ok bool) {
	lines = make([]batchLine, 0, min(maxLines, 1+bytes.Count(body, []byte{'\n'})))
	for number := 1; len(body) > 0; number++ {
		var text []byte
		text, body, _ = bytes.Cut(body, []byte{'\n'})
		tooLong := len(text) > schema.MaxEventBytes+len("\r")
		if text = bytes.TrimSpace(text); len(text) == 0 && !tooLong {
			continue
		}
		if len(lines) == maxLines {
			return nil, false
		}
		line := batchLine{Line: number}
		if tooLong {
			line.fieldError = &fieldError{Field: "line", Reason: string(schema.OverSize),
				Detail: fmt.Sprintf("has more than %d bytes", schema.MaxEventBytes)}
		} else if line.fieldError = parseEvent(text, "line", &line.event); line.fieldError == nil {
			complete(&line.event, defaults)
		}
		lines = append(lines, line)
	}
	return lines, true
}

// parseEvent parses an event in JSON. whole is the name of the text in errors.
func parseEvent(text []byte, whole string, e *schema.Event) *fieldError {
	if schema.DecodePlainEvent(text, e) { // the common case
		return nil
	}
	// DecodeEvent also accepts Protobuf, which the text must not be: eventFields lets only a JSON object through.
	_, wrong := eventFields(text, whole,
		"post_id", "postId", "user_id", "userId", "action", "time_ms", "timeMs", "region")
	if wrong != nil {
		return wrong
	}
	if err := schema.DecodeEvent(nil, text, e); err != nil {
		return new(problem.FieldErrorOf(err, whole))
	}
	return nil
}

func (p *Producer) publishBatch(
	w http.ResponseWriter, r *http.Request, who caller, lines []batchLine, timeMs int64, errorsOnly bool,
) *problem.Problem {
	var longest time.Duration // wait of a user above the limit
	events := make([]schema.Event, 0, len(lines))
	for i := range lines {
		line := &lines[i]
		if line.fieldError == nil {
			var wait time.Duration
			line.fieldError, wait = p.refusal(who, &line.event)
			longest = max(longest, wait)
		}
		if line.fieldError != nil {
			p.metrics.rejected.WithLabelValues(line.Reason).Inc()
			continue
		}
		if line.event.RegionMalformed {
			p.metrics.regionMalformed.Inc()
		}
		events = append(events, line.event)
	}
	var acks []ack
	if len(events) > 0 {
		var err error
		if acks, err = p.publish(r.Context(), who.address, events); err != nil {
			return p.notWritten(err)
		}
	}
	result, firstErr := p.settle(lines, acks)
	if errorsOnly {
		result.Lines = slices.DeleteFunc(lines, func(l batchLine) bool { return l.position != nil })
	}
	switch {
	case result.Failed > 0:
		p.failWith(w, http.StatusServiceUnavailable, unacknowledgedBatch{p.notAcknowledged(firstErr, timeMs), result})
	case result.Accepted == 0:
		prob := nothingTaken(result.Lines)
		if prob.Status == http.StatusTooManyRequests {
			retryIn(w, longest)
		}
		p.failWith(w, prob.Status, batchProblem{prob, result})
	default:
		problem.Answer(w, http.StatusAccepted, result)
	}
	return nil
}

// settle stores acks in the lines without an error, in the same order. firstErr is the error of the first failed line.
func (p *Producer) settle(lines []batchLine, acks []ack) (result batchResult, firstErr error) {
	result = batchResult{Lines: lines, Rejected: len(lines) - len(acks)}
	for i := range lines {
		line := &lines[i]
		if line.fieldError != nil {
			continue
		}
		ack := &acks[0]
		acks = acks[1:]
		if ack.accepted {
			line.position = &ack.position
			result.Accepted++
			continue
		}
		line.fieldError = &fieldError{Reason: reasonNotAcknowledged, Detail: p.why(ack.err)}
		if result.Failed++; result.Failed == 1 {
			result.FirstUnacceptedLine, firstErr = line.Line, ack.err
		}
	}
	return result, firstErr
}

// nothingTaken returns the problem of a batch without an accepted line: that of its lines, if all have the same.
func nothingTaken(lines []batchLine) *problem.Problem {
	all := func(reason string) bool {
		return !slices.ContainsFunc(lines, func(l batchLine) bool { return l.Reason != reason })
	}
	switch {
	case all(reasonForbidden):
		return forbidden("every line is for a user other than the caller; see lines")
	case all(reasonRateLimited):
		return rateLimited("every line is for a user above the rate limit; see lines")
	}
	return problem.New(http.StatusBadRequest, "invalid-request", "The request is not valid",
		"no line is a valid event; see lines")
}
