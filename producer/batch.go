package producer

import (
	"bytes"
	"net/http"
	"time"

	"kudos/httpserver/problem"
	"kudos/schema"
)

// batchResult is the answer to a batch. A batch that is not taken in full answers
// with the same members in a problem.
type batchResult struct {
	Accepted int `json:"accepted"` // Kafka has them
	Rejected int `json:"rejected"` // they are no events, or not the caller's to send
	Failed   int `json:"failed"`   // Kafka has not acknowledged them: repeat them
	// FirstUnacceptedLine is the first that failed; what was before it is settled.
	FirstUnacceptedLine int          `json:"first_unaccepted_line,omitempty"`
	Lines               []lineResult `json:"lines"`
}

type batchProblem struct {
	*problem.Problem
	batchResult
}

type unacknowledgedBatch struct {
	unacknowledged
	batchResult
}

// postBatch serves POST of many likes: read all of it, then take its slots, then write all of it. What is wrong
// with the request as a whole is thereby known before anything is written.
func (p *Producer) postBatch(w http.ResponseWriter, r *http.Request, who caller) {
	fb, errorsOnly, prob := p.batchHead(r)
	if prob != nil {
		p.fail(w, prob)
		return
	}
	body, err := p.batchBodies.Read(w, r)
	if err != nil {
		p.fail(w, unwritten(problem.UnreadBody(err, p.options.MaxBatchBytes)))
		return
	}
	if !p.batches.TryAcquire(1) {
		p.fail(w, tooManyRequests("as many batches are in hand as the producer takes"))
		return
	}
	defer p.batches.Release(1)
	if !p.takeSlot(w) {
		return
	}
	defer p.requests.Release(1)

	b, err := readBatch(bytes.NewReader(body), p.options.MaxBatchLines, &fb)
	switch {
	case err != nil: // errTooManyLines is all that reading from memory may give
		p.fail(w, tooLarge("the batch has more than %d lines", p.options.MaxBatchLines))
		return
	case len(b.lines) == 0:
		p.fail(w, problem.InvalidRequest(fieldError{Field: "body", Reason: problem.Empty, Detail: "has no line"}))
		return
	}
	b.refuse(func(e *schema.Event) (*fieldError, time.Duration) { return p.refusal(who, e) })
	p.publishBatch(w, r, b, fb.timeMs, errorsOnly)
}

// batchHead reads what a batch's request says outside of its body.
func (p *Producer) batchHead(r *http.Request) (fb fallback, errorsOnly bool, prob *problem.Problem) {
	fb, errs := p.fallbackOf(r)
	if prob := problem.RequireMediaType(r, "application/x-ndjson", "application/ndjson", "application/jsonl"); prob != nil {
		return fb, false, prob
	}
	switch r.URL.Query().Get("lines") {
	case "", "all":
	case "errors":
		errorsOnly = true
	default:
		errs = append(errs, fieldError{Field: "lines", Reason: problem.UnknownValue, Detail: "is neither all nor errors"})
	}
	if len(errs) > 0 {
		return fb, false, problem.InvalidRequest(errs...)
	}
	return fb, errorsOnly, nil
}

func (p *Producer) publishBatch(w http.ResponseWriter, r *http.Request, b *batch, timeMs int64, errorsOnly bool) {
	p.count(b)
	acks, err := []ack(nil), error(nil)
	if len(b.events) > 0 {
		acks, err = p.publisher.publish(r.Context(), b.events)
	}
	if err != nil {
		p.fail(w, p.refused(err))
		return
	}
	result, firstErr := b.settle(acks, p.why)
	if errorsOnly {
		result.onlyErrors()
	}
	switch {
	case result.Failed > 0:
		p.failWith(w, http.StatusServiceUnavailable, unacknowledgedBatch{p.notAcknowledged(firstErr, timeMs), result})
	case result.Accepted == 0:
		prob := nothingTaken(result.Lines)
		if prob.Status == http.StatusTooManyRequests {
			retryIn(w, b.wait)
		}
		p.failWith(w, prob.Status, batchProblem{prob, result})
	default:
		problem.Answer(w, http.StatusAccepted, result)
	}
}

func (p *Producer) count(b *batch) {
	for i := range b.lines {
		if wrong := b.lines[i].fieldError; wrong != nil {
			p.metrics.rejected.WithLabelValues(wrong.Reason).Inc()
		}
	}
	for i := range b.events {
		if b.events[i].RegionMalformed {
			p.metrics.regionMalformed.Inc()
		}
	}
}

// settle puts what became of the events into their lines. firstErr is the first
// failed line's.
func (b *batch) settle(acks []ack, why func(error) string) (result batchResult, firstErr error) {
	result = batchResult{Lines: b.lines, Rejected: len(b.lines) - len(b.events)}
	for i := range acks {
		line := &b.lines[b.lineOf[i]]
		if acks[i].accepted {
			line.position = &acks[i].position
			result.Accepted++
			continue
		}
		line.fieldError = &fieldError{Reason: reasonNotAcknowledged, Detail: why(acks[i].err)}
		if result.Failed++; result.Failed == 1 {
			result.FirstUnacceptedLine, firstErr = line.Line, acks[i].err
		}
	}
	return result, firstErr
}

// onlyErrors leaves the accepted lines out.
func (b *batchResult) onlyErrors() {
	kept := b.Lines[:0]
	for _, line := range b.Lines {
		if line.position == nil {
			kept = append(kept, line)
		}
	}
	b.Lines = kept
}
