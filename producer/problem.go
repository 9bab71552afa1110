package producer

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/httpserver"
	"kudos/httpserver/problem"
)

// fieldError gives problem.FieldError a short name, under which batchLine embeds it.
type fieldError = problem.FieldError

// unacknowledged is the problem of an event that may or may not be in Kafka.
type unacknowledged struct {
	*problem.Problem
	// TimeMs is the event time of the request. A repeated request that has it keeps its place in the order of events.
	TimeMs int64 `json:"time_ms,omitempty"`
}

func unwritten(p *problem.Problem) *problem.Problem {
	const nothing = "; nothing was written"
	p.Detail += nothing
	for i := range p.Errors {
		p.Errors[i].Detail += nothing
	}
	return p
}

func forbidden(format string, args ...any) *problem.Problem {
	return problem.New(http.StatusForbidden, "forbidden", "Not allowed to act for another user", format, args...)
}

// rateLimited is a 429 problem: the caller is above a rate. Retry-After says how long to wait.
func rateLimited(format string, args ...any) *problem.Problem {
	return problem.New(http.StatusTooManyRequests, "rate-limited", "Rate limit exceeded", format, args...)
}

// notWritten says that publish wrote nothing. A full buffer is due to the clients while Kafka answers, else to Kafka.
func (p *Producer) notWritten(err error) *problem.Problem {
	if errors.Is(err, errNotRunning) {
		return problem.New(http.StatusServiceUnavailable, "not-running", "Service unavailable",
			"the producer is starting or shutting down; nothing was written")
	}
	status, why := http.StatusTooManyRequests, "events arrive faster than Kafka accepts them"
	if full, ok := errors.AsType[*httpserver.FullError](err); ok && full.OfAddress {
		why = full.Error()
	} else if p.kafkaReady() != nil {
		status, why = http.StatusServiceUnavailable, "Kafka does not answer"
	}
	return problem.New(status, "buffer-full", "The buffer for Kafka is full", "%s; nothing was written", why)
}

func (p *Producer) notAcknowledged(err error, timeMs int64) unacknowledged {
	return unacknowledged{problem.New(http.StatusServiceUnavailable, "not-acknowledged", "Not acknowledged by Kafka",
		"outcome unknown: safe to retry, with this time_ms so that it keeps its order: %s", p.why(err)), timeMs}
}

// why returns why an event was not acknowledged, without the addresses that err may contain.
func (p *Producer) why(err error) string {
	if answer, ok := errors.AsType[*kerr.Error](err); ok {
		return "Kafka answered " + answer.Error()
	}
	if errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, kgo.ErrAborting) {
		return "the producer shut down"
	}
	return fmt.Sprintf("Kafka has not answered within %s", p.options.AckTimeout)
}

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

func (p *Producer) failWith(w http.ResponseWriter, status int, body any) {
	again := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
	if again && w.Header().Get("Retry-After") == "" { // keep a more exact one
		w.Header().Set("Retry-After", strconv.Itoa(int(p.options.RetryAfter.Seconds())))
	}
	problem.WriteBody(w, status, body)
}
