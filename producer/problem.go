package producer

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/httpserver/problem"
)

// fieldError by its short name: a line of a batch embeds it.
type fieldError = problem.FieldError

// unacknowledged is the problem of an event that Kafka may have or not.
type unacknowledged struct {
	*problem.Problem
	// TimeMs is the event time that the request had; to repeat the request with it keeps its place.
	TimeMs int64 `json:"time_ms,omitempty"`
}

// unwritten says that a refused request has left nothing in Kafka.
func unwritten(p *problem.Problem) *problem.Problem {
	const nothing = "; nothing of it was written"
	p.Detail += nothing
	for i := range p.Errors {
		p.Errors[i].Detail += nothing
	}
	return p
}

// forbidden is for a caller who is known, and may not do this.
func forbidden(format string, args ...any) *problem.Problem {
	return problem.New(http.StatusForbidden, "forbidden", "Not in the name of another user", format, args...)
}

// rateLimited is for a caller who is too fast; the header Retry-After says how much.
func rateLimited(format string, args ...any) *problem.Problem {
	return problem.New(http.StatusTooManyRequests, "rate-limited", "Too fast", format, args...)
}

func tooManyRequests(what string) *problem.Problem {
	return problem.TooManyRequests("%s; nothing of this one was written", what)
}

// notWritten is the answer when publish wrote nothing. A full buffer is the clients' doing
// while Kafka answers, and Kafka's otherwise.
func (p *Producer) notWritten(err error) *problem.Problem {
	if errors.Is(err, errNotRunning) {
		return problem.New(http.StatusServiceUnavailable, "not-running", "Likes are not taken now",
			"the producer starts or shuts down; nothing of this request was written")
	}
	status, why := http.StatusTooManyRequests, "events come faster than Kafka takes them"
	if p.kafkaReady() != nil {
		status, why = http.StatusServiceUnavailable, "Kafka does not answer"
	}
	return problem.New(status, "buffer-full", "The buffer for Kafka is full",
		"%s; nothing of this request was written", why)
}

func (p *Producer) notAcknowledged(err error, timeMs int64) unacknowledged {
	return unacknowledged{problem.New(http.StatusServiceUnavailable, "not-acknowledged", "Kafka has not acknowledged",
		"unknown: not acknowledged, safe to repeat (with this time_ms it keeps its place): %s", p.why(err)), timeMs}
}

// why says why an event was not acknowledged, without the addresses that an error may hold.
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

// failing writes the problem that serve returns, and counts its errors.
func (p *Producer) failing(serve func(http.ResponseWriter, *http.Request) *problem.Problem) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		prob := serve(w, r)
		if prob == nil {
			return
		}
		for _, e := range prob.Errors {
			p.metrics.rejected.WithLabelValues(e.Reason).Inc()
		}
		p.failWith(w, prob.Status, prob)
	}
}

// failWith writes a body that has a problem's members.
func (p *Producer) failWith(w http.ResponseWriter, status int, body any) {
	again := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
	if again && w.Header().Get("Retry-After") == "" { // otherwise it is known better
		w.Header().Set("Retry-After", strconv.Itoa(int(p.options.RetryAfter.Seconds())))
	}
	problem.WriteBody(w, status, body)
}
