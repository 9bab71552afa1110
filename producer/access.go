package producer

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"kudos/httpserver/problem"
	"kudos/schema"
)

// access is who may send what, and how fast.
//
//	request ─► rate of its address ─► who is it? ─► handler ─► may they, for this user? ─► the user's rate ─► publish
//	                 429               401                          403                       429
type access struct {
	identify   identify
	keys       *keyring // nil unless tokens are verified
	proxies    networks
	perAddress *limiter[netip.Addr] // of requests
	perUser    *limiter[uint64]     // of events
}

func newAccess(o Options, log *slog.Logger) (*access, error) {
	a := &access{
		perAddress: newLimiter[netip.Addr](o.AddressRate, o.AddressBurst, maxBuckets),
		perUser:    newLimiter[uint64](o.UserRate, o.UserBurst, maxBuckets),
	}
	if o.Auth == AuthJWT {
		a.keys = newKeyring(o, log)
	}
	var errProxies, errIdentify error
	if a.proxies, errProxies = parseNetworks(o.TrustedProxies); errProxies != nil {
		errProxies = fmt.Errorf("producer.trusted_proxies: %w", errProxies)
	}
	a.identify, errIdentify = newIdentify(o, a.keys)
	return a, errors.Join(errProxies, errIdentify)
}

// Why requests and events are refused: the label kind of kudos_producer_refused_total.
const (
	refusedUnauthenticated = "unauthenticated"
	refusedForbidden       = "forbidden"
	refusedAddressRate     = "address_rate"
	refusedUserRate        = "user_rate"
)

// Reasons of events that are refused, beyond schema's and problem's.
const (
	reasonForbidden   = "forbidden"
	reasonRateLimited = "rate_limited"
)

// action serves a request whose caller is known.
type action func(w http.ResponseWriter, r *http.Request, who caller)

// known lets in whoever is not too fast and says who they are, before their request's
// body is read.
func (p *Producer) known(do action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if wait := p.access.waitOfAddress(r); wait > 0 {
			p.metrics.refused.WithLabelValues(refusedAddressRate).Inc()
			retryIn(w, wait)
			p.fail(w, unwritten(rateLimited("requests come from this address faster than %g a second", p.options.AddressRate)))
			return
		}
		who, err := p.access.identify(r)
		if err != nil {
			p.failUnauthenticated(w, err)
			return
		}
		do(w, r, who)
	}
}

func (a *access) waitOfAddress(r *http.Request) time.Duration {
	if a.perAddress == nil {
		return 0
	}
	return a.perAddress.take(subscriberOf(a.proxies.clientOf(r)))
}

func (p *Producer) failUnauthenticated(w http.ResponseWriter, err error) {
	var who *authError
	if !errors.As(err, &who) {
		p.fail(w, unwritten(problem.New(http.StatusServiceUnavailable, "keys-unavailable", "Tokens cannot be verified now", "%v", err)))
		return
	}
	p.metrics.refused.WithLabelValues(refusedUnauthenticated).Inc()
	w.Header().Set("WWW-Authenticate", who.challenge)
	p.fail(w, unwritten(problem.New(http.StatusUnauthorized, "unauthenticated", "It is not known who asks", "%s", who.detail)))
}

// refusal says why an event of a caller is not written, and for how long if that passes;
// nil: it may be.
func (p *Producer) refusal(who caller, e *schema.Event) (wrong *fieldError, wait time.Duration) {
	if !who.actsFor(e.UserID) {
		p.metrics.refused.WithLabelValues(refusedForbidden).Inc()
		return &fieldError{Field: "user_id", Reason: reasonForbidden,
			Detail: fmt.Sprintf("is %d, and the request is user %d's, who can act for nobody else", e.UserID, who.user)}, 0
	}
	if who.service {
		return nil, 0
	}
	if wait := p.access.perUser.take(e.UserID); wait > 0 {
		p.metrics.refused.WithLabelValues(refusedUserRate).Inc()
		return &fieldError{Field: "user_id", Reason: reasonRateLimited,
			Detail: fmt.Sprintf("is %d, whose likes come faster than %g a second", e.UserID, p.options.UserRate)}, wait
	}
	return nil, 0
}

// refuse answers a request whose one event is not written.
func (p *Producer) refuse(w http.ResponseWriter, wrong *fieldError, wait time.Duration) {
	prob := forbidden("%s %s", wrong.Field, wrong.Detail)
	if wrong.Reason == reasonRateLimited {
		prob = rateLimited("%s %s", wrong.Field, wrong.Detail)
		retryIn(w, wait)
	}
	prob.Errors = []fieldError{*wrong}
	p.fail(w, unwritten(prob))
}

// refuse takes out the events of a batch that the caller may not have written, and notes
// why in their lines.
func (b *batch) refuse(refusal func(*schema.Event) (*fieldError, time.Duration)) {
	kept := 0
	for i := range b.events {
		wrong, wait := refusal(&b.events[i])
		b.wait = max(b.wait, wait)
		if wrong != nil {
			b.lines[b.lineOf[i]].fieldError = wrong
			continue
		}
		b.events[kept], b.lineOf[kept] = b.events[i], b.lineOf[i]
		kept++
	}
	b.events, b.lineOf = b.events[:kept], b.lineOf[:kept]
}

// nothingTaken is the problem of a batch of which no line was taken: that of all its lines,
// if they have the same.
func nothingTaken(lines []lineResult) *problem.Problem {
	reasons := map[string]bool{}
	for i := range lines {
		reasons[lines[i].Reason] = true
	}
	switch {
	case len(reasons) == 1 && reasons[reasonForbidden]:
		return forbidden("every line is for another user than the one who asks; lines tells which")
	case len(reasons) == 1 && reasons[reasonRateLimited]:
		return rateLimited("every line is of a user whose likes come too fast; lines tells which")
	}
	return problem.New(http.StatusBadRequest, "invalid-request", "The request is not valid", "no line is an event; lines tells why")
}

// retryIn tells the client when its turn is, in whole seconds.
func retryIn(w http.ResponseWriter, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
}
