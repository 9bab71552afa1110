package producer

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"time"

	"kudos/httpserver/problem"
	"kudos/schema"
)

// batchResult is the answer to a batch. If no line of it is accepted, or Kafka does not acknowledge all, it is part of
// a problem.
type batchResult struct {
	Accepted int `json:"accepted"` // Kafka has them
	Rejected int `json:"rejected"` // they are no events, or not the caller's to send
	Failed   int `json:"failed"`   // Kafka has not acknowledged them: repeat them
	// FirstUnacceptedLine is the first that failed; what was before it is settled.
	FirstUnacceptedLine int         `json:"first_unaccepted_line,omitempty"`
	Lines               []batchLine `json:"lines"`
}

// batchLine is one line of a batch, and the answer for it: its position in Kafka, or what is wrong with it.
type batchLine struct {
	Line        int `json:"line"` // from 1
	*position       // an accepted line's
	*fieldError     // any other's
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

// postBatch serves POST of many likes: it reads all of the body, then takes its slots, then publishes. So what is wrong
// with the request as a whole is known before anything is written.
func (p *Producer) postBatch(w http.ResponseWriter, r *http.Request, who caller) *problem.Problem {
	defaults, errs := p.eventOf(r)
	prob := problem.RequireMediaType(r, "application/x-ndjson", "application/ndjson", "application/jsonl")
	if prob != nil {
		return prob
	}
	shown := r.URL.Query().Get("lines")
	if !slices.Contains([]string{"", "all", "errors"}, shown) {
		detail := "is neither all nor errors"
		errs = append(errs, fieldError{Field: "lines", Reason: problem.UnknownValue, Detail: detail})
	}
	if len(errs) > 0 {
		return problem.InvalidRequest(errs...)
	}
	body, err := p.batchBodies.Read(w, r)
	if err != nil {
		return unwritten(problem.UnreadBody(err, p.options.MaxBatchBytes))
	}
	if !p.batches.TryAcquire(1) {
		return tooManyRequests("as many batches are in hand as the producer takes")
	}
	defer p.batches.Release(1)
	if prob := p.takeSlot(); prob != nil {
		return prob
	}
	defer p.requests.Release(1)

	lines, ok := parseBatch(body, p.options.MaxBatchLines, &defaults)
	switch {
	case !ok:
		return unwritten(problem.TooLarge("the batch has more than %d lines", p.options.MaxBatchLines))
	case len(lines) == 0:
		return problem.InvalidRequest(fieldError{Field: "body", Reason: problem.Empty, Detail: "has no line"})
	}
	return p.publishBatch(w, r, who, lines, defaults.TimeMs, shown == "errors")
}

// parseBatch reads NDJSON: one event a line, in the JSON form of the likes topic. Empty lines are skipped, but have a
// number. A bad line is noted and harms no other. It is not ok if there are more than maxLines.
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
		} else if line.fieldError = parseLine(text, &line.event); line.fieldError == nil {
			complete(&line.event, defaults)
		}
		lines = append(lines, line)
	}
	return lines, true
}

func parseLine(text []byte, e *schema.Event) *fieldError {
	if schema.DecodePlainEvent(text, e) { // nearly always
		return nil
	}
	// DecodeEvent takes Protobuf too, which has no place in a line: this lets only a JSON object through.
	_, wrong := problem.ParseFields(text, "line",
		"post_id", "postId", "user_id", "userId", "action", "time_ms", "timeMs", "region")
	if wrong != nil {
		return wrong
	}
	if err := schema.DecodeEvent(nil, text, e); err != nil {
		wrong := problem.FieldErrorOf(err, "line")
		return &wrong
	}
	return nil
}

// publishBatch publishes the lines that are events and that the caller may have written.
func (p *Producer) publishBatch(
	w http.ResponseWriter, r *http.Request, who caller, lines []batchLine, timeMs int64, errorsOnly bool,
) *problem.Problem {
	var longest time.Duration // that a user in it has to wait whose likes came too fast
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
		if acks, err = p.publish(r.Context(), events); err != nil {
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

// settle puts what became of the events into their lines, which are those without an error, in this order. firstErr is
// the first failed line's.
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

// nothingTaken is the problem of a batch of which no line was accepted: that of all its lines, if they have the same.
func nothingTaken(lines []batchLine) *problem.Problem {
	all := func(reason string) bool {
		return !slices.ContainsFunc(lines, func(l batchLine) bool { return l.Reason != reason })
	}
	switch {
	case all(reasonForbidden):
		return forbidden("every line is for another user than the one who asks; lines tells which")
	case all(reasonRateLimited):
		return rateLimited("every line is of a user whose likes come too fast; lines tells which")
	}
	return problem.New(http.StatusBadRequest, "invalid-request", "The request is not valid",
		"no line is an event; lines tells why")
}
