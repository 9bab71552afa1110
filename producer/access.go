package producer

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"kudos/httpserver/problem"
	"kudos/schema"
)

// This file is who may send what, and how fast:
//
//	request ─► rate of its address ─► who is it? ─► handler ─► may they, for this user? ─► the user's rate ─► publish
//	                 429               401                          403                       429

// The ways to know who sends a request: the values of Options.Auth.
const (
	AuthNone    = "none"    // nobody is authenticated: what the path or the body says holds
	AuthGateway = "gateway" // a gateway says it, in a header
	AuthJWT     = "jwt"     // a token says it, which the issuer has signed
)

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

// caller is who sends a request. The zero caller acts for nobody.
type caller struct {
	user    uint64 // the user, if it is one
	anybody bool   // may act for every user
	service bool   // has the service scope: a user's rate does not hold it
}

func (c caller) actsFor(user uint64) bool { return c.anybody || c.user == user }

// authError is answered with 401.
type authError struct {
	challenge string // what WWW-Authenticate says
	detail    string
}

func (e *authError) Error() string { return e.detail }

// identify finds out who sends a request. An authError says why that is not known; any
// other error that it cannot be found out now.
func (p *Producer) identify(r *http.Request) (caller, error) {
	switch p.options.Auth {
	case AuthGateway:
		return p.identifyByHeader(r)
	case AuthJWT:
		return p.identifyByToken(r)
	}
	return caller{anybody: true}, nil
}

// identifyByHeader believes a header that comes from some addresses. Whoever is there has to
// authenticate the user, and to take the header away from what users send.
func (p *Producer) identifyByHeader(r *http.Request) (caller, error) {
	// A 401 needs a challenge: there is nothing that a client could do.
	fail := func(format string, args ...any) (caller, error) {
		return caller{}, &authError{`Gateway realm="kudos"`, fmt.Sprintf(format, args...)}
	}
	if !p.gateways.contain(parseAddr(r.RemoteAddr)) {
		return fail("the request does not come from the gateway (producer.auth_trusted_cidrs)")
	}
	header := p.options.AuthHeader
	given := r.Header.Values(header)
	if len(given) != 1 {
		return fail("the gateway sends %d headers %s, not one", len(given), header)
	}
	user, ok := parseUser(given[0])
	if !ok {
		return fail("the header %s is no user id: a whole number above 0 of 64 bits, without leading zeros", header)
	}
	return caller{user: user}, nil
}

// parseUser reads the user id of a credential. Only the shortest form is one, so that no
// two names of whoever authenticates are the same user here.
func parseUser(text string) (uint64, bool) {
	id, err := strconv.ParseUint(text, 10, 64)
	return id, err == nil && id > 0 && strconv.FormatUint(id, 10) == text
}

// action serves a request whose caller is authenticated, or returns the problem that it is to be answered with.
type action func(w http.ResponseWriter, r *http.Request, who caller) *problem.Problem

// authenticated applies the rate limit of the client's address, then checks credentials, before the request's body is
// read.
func (p *Producer) authenticated(do action) http.HandlerFunc {
	return p.failing(func(w http.ResponseWriter, r *http.Request) *problem.Problem {
		if wait := p.addressRate.take(subscriberOf(p.proxies.clientOf(r))); wait > 0 {
			p.metrics.refused.WithLabelValues(refusedAddressRate).Inc()
			retryIn(w, wait)
			return unwritten(rateLimited(
				"requests come from this address faster than %g a second", p.options.AddressRate))
		}
		who, err := p.identify(r)
		var unknown *authError
		switch {
		case errors.As(err, &unknown):
			p.metrics.refused.WithLabelValues(refusedUnauthenticated).Inc()
			w.Header().Set("WWW-Authenticate", unknown.challenge)
			return unwritten(problem.New(http.StatusUnauthorized, "unauthenticated",
				"It is not known who asks", "%s", unknown.detail))
		case err != nil:
			return unwritten(problem.New(http.StatusServiceUnavailable, "keys-unavailable",
				"Tokens cannot be verified now", "%v", err))
		}
		return do(w, r, who)
	})
}

// refusal says why an event of a caller is not written, and for how long if that passes; nil: it may be.
func (p *Producer) refusal(who caller, e *schema.Event) (wrong *fieldError, wait time.Duration) {
	if !who.actsFor(e.UserID) {
		p.metrics.refused.WithLabelValues(refusedForbidden).Inc()
		detail := fmt.Sprintf("is %d, and the request is user %d's, who can act for nobody else", e.UserID, who.user)
		return &fieldError{Field: "user_id", Reason: reasonForbidden, Detail: detail}, 0
	}
	if who.service {
		return nil, 0
	}
	if wait := p.userRate.take(e.UserID); wait > 0 {
		p.metrics.refused.WithLabelValues(refusedUserRate).Inc()
		detail := fmt.Sprintf("is %d, whose likes come faster than %g a second", e.UserID, p.options.UserRate)
		return &fieldError{Field: "user_id", Reason: reasonRateLimited, Detail: detail}, wait
	}
	return nil, 0
}

// retryIn tells the client when its turn is, in whole seconds.
func retryIn(w http.ResponseWriter, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
}
