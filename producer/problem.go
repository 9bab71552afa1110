package producer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// problem is an answer that is not a success: a problem detail of RFC 9457. Its type
// tells the cases of a status apart; docs/http.md lists them.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Errors name the parts of the request at fault.
	Errors []fieldError `json:"errors,omitempty"`
	// TimeMs is the event time that the request had; to repeat the request with it
	// keeps its place.
	TimeMs int64 `json:"time_ms,omitempty"`
}

// fieldError is what is wrong with one part of a request. Reason is one word for a
// program, Detail a sentence for a person.
type fieldError struct {
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

func newProblem(status int, slug, title, format string, args ...any) *problem {
	return &problem{Type: "urn:kudos:problem:" + slug, Title: title, Status: status, Detail: fmt.Sprintf(format, args...)}
}

func invalidRequest(errs ...fieldError) *problem {
	p := newProblem(http.StatusBadRequest, "invalid-request", "The request is not valid", "%s: %s", errs[0].Field, errs[0].Detail)
	p.Errors = errs
	return p
}

func tooLarge(format string, args ...any) *problem {
	return newProblem(http.StatusRequestEntityTooLarge, "too-large", "The request is too large", format+"; nothing of it was written", args...)
}

func unsupportedMediaType(format string, args ...any) *problem {
	return newProblem(http.StatusUnsupportedMediaType, "unsupported-media-type", "The body has an unsupported form", format, args...)
}

func tooManyRequests(what string) *problem {
	return newProblem(http.StatusTooManyRequests, "too-many-requests", "Too many requests at a time",
		"%s; nothing of this one was written", what)
}

// refused is the answer when publish wrote nothing. A full buffer is the client's
// pace while Kafka answers, and else Kafka's absence.
func (p *Producer) refused(err error) *problem {
	switch {
	case errors.Is(err, errNotRunning):
		return newProblem(http.StatusServiceUnavailable, "not-running", "Likes are not taken now",
			"the producer starts or shuts down; nothing of this request was written")
	case p.publisher.ready() == nil:
		return newProblem(http.StatusTooManyRequests, "buffer-full", "The buffer for Kafka is full",
			"events come faster than Kafka takes them; nothing of this request was written")
	}
	return newProblem(http.StatusServiceUnavailable, "buffer-full", "The buffer for Kafka is full",
		"Kafka does not answer; nothing of this request was written")
}

func (p *Producer) notAcknowledged(err error, timeMs int64) *problem {
	prob := newProblem(http.StatusServiceUnavailable, "not-acknowledged", "Kafka has not acknowledged",
		"unknown: not acknowledged, safe to repeat (with this time_ms it keeps its place): %s", p.why(err))
	prob.TimeMs = timeMs
	return prob
}

// why says why an event was not acknowledged, without the addresses that an error
// may hold.
func (p *Producer) why(err error) string {
	var answer *kerr.Error
	switch {
	case errors.As(err, &answer):
		return "Kafka answered " + answer.Error()
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, kgo.ErrAborting):
		return "the producer shut down"
	}
	return fmt.Sprintf("Kafka has not answered within %s", p.options.AckTimeout)
}

// fieldErrorOf tells a poison error by field; whole stands for the event itself.
func fieldErrorOf(err error, whole string) fieldError {
	var poison *schema.PoisonError
	if !errors.As(err, &poison) {
		return fieldError{whole, string(schema.Undecodable), err.Error()}
	}
	fe := fieldError{poison.Field, string(poison.Reason), poison.Detail}
	if fe.Field == "" {
		fe.Field = whole
	}
	return fe
}

// answer writes a success.
func answer(w http.ResponseWriter, status int, body any) {
	writeJSON(w, status, "application/json", body)
}

// fail writes a problem, or a body that has one's members, and counts its errors.
func (p *Producer) fail(w http.ResponseWriter, prob *problem) {
	for _, e := range prob.Errors {
		p.metrics.rejected.WithLabelValues(e.Reason).Inc()
	}
	p.failWith(w, prob.Status, prob)
}

func (p *Producer) failWith(w http.ResponseWriter, status int, body any) {
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(int(p.options.RetryAfter.Seconds())))
	}
	writeJSON(w, status, "application/problem+json", body)
}

// writeJSON writes an answer. A client that is gone by now gets none: the error says
// nothing that its absence does not.
func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
