package producer

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"

	"kudos/httpserver"
	"kudos/httpserver/problem"
	"kudos/schema"
)

// This file decides who may send what, and how fast:
//
//	request ─► address rate ─► authenticate ─► handler ─► may act for the user? ─► user rate ─► publish
//	               429             401                             403                429

// How requests are authenticated: the values of Options.Auth.
const (
	AuthNone    = "none"    // no authentication: the user in the path or body is believed
	AuthGateway = "gateway" // a gateway authenticates, and sends the user in a header
	AuthJWT     = "jwt"     // a token names the user, signed by the issuer
)

// Values of the label kind of kudos_producer_refused_total.
const (
	refusedUnauthenticated = "unauthenticated"
	refusedForbidden       = "forbidden"
	refusedAddressRate     = "address_rate"
	refusedUserRate        = "user_rate"
)

// Reasons to reject an event, in addition to schema's and problem's.
const (
	reasonForbidden   = "forbidden"
	reasonRateLimited = "rate_limited"
)

// caller is the sender of a request. The zero caller may act for nobody.
type caller struct {
	user    uint64     // if the sender is one
	anybody bool       // may act for every user
	service bool       // has the service scope: no user rate applies
	address netip.Addr // see httpserver.Networks.ClientOf
}

func (c caller) actsFor(user uint64) bool { return c.anybody || c.user == user }

// authError becomes a 401.
type authError struct {
	challenge string // for WWW-Authenticate
	detail    string
}

func (e *authError) Error() string { return e.detail }

// identify authenticates a request. An *authError says why that failed; with any other error it cannot be decided now.
func (p *Producer) identify(r *http.Request) (caller, error) {
	switch p.options.Auth {
	case AuthGateway:
		return p.identifyByHeader(r)
	case AuthJWT:
		return p.identifyByToken(r)
	}
	return caller{anybody: true}, nil
}

// identifyByHeader trusts the gateway to authenticate the user, and to remove the header from what clients send.
func (p *Producer) identifyByHeader(r *http.Request) (caller, error) {
	// A 401 must have a challenge, although no client can act on this one.
	fail := func(format string, args ...any) (caller, error) {
		return caller{}, &authError{`Gateway realm="kudos"`, fmt.Sprintf(format, args...)}
	}
	if !p.gateways.Contain(httpserver.ParseAddr(r.RemoteAddr)) {
		return fail("the request does not come from the gateway (producer.auth_trusted_cidrs)")
	}
	header := p.options.AuthHeader
	given := r.Header.Values(header)
	if len(given) != 1 {
		return fail("the gateway sent %d %s headers instead of one", len(given), header)
	}
	user, ok := parseUser(given[0])
	if !ok {
		return fail("the header %s is not a user id: a 64-bit integer above 0, without leading zeros", header)
	}
	return caller{user: user}, nil
}

// parseUser accepts only the canonical form, so that no two names at the authenticator are the same user here.
func parseUser(text string) (uint64, bool) {
	id, err := strconv.ParseUint(text, 10, 64)
	return id, err == nil && id > 0 && strconv.FormatUint(id, 10) == text
}

// action serves an authenticated request, or returns the problem to answer with.
type action func(w http.ResponseWriter, r *http.Request, who caller) *problem.Problem

// authenticated applies the rate limit of the client's address, then checks credentials, before the body is read.
func (p *Producer) authenticated(do action) http.HandlerFunc {
	return p.failing(func(w http.ResponseWriter, r *http.Request) *problem.Problem {
		address := p.proxies.ClientOf(r)
		if wait := p.addressRate.take(address); wait > 0 {
			p.metrics.refused.WithLabelValues(refusedAddressRate).Inc()
			retryIn(w, wait)
			return unwritten(rateLimited(
				"requests from this address exceed the rate limit of %g per second", p.options.AddressRate))
		}
		who, err := p.identify(r)
		if unknown, ok := errors.AsType[*authError](err); ok {
			p.metrics.refused.WithLabelValues(refusedUnauthenticated).Inc()
			w.Header().Set("WWW-Authenticate", unknown.challenge)
			return unwritten(problem.New(http.StatusUnauthorized, "unauthenticated",
				"Authentication required", "%s", unknown.detail))
		}
		if err != nil {
			return unwritten(problem.New(http.StatusServiceUnavailable, "keys-unavailable",
				"Token verification unavailable", "%v", err))
		}
		who.address = address
		return do(w, r, who)
	})
}

// refusal says why an event of the caller is rejected, and how long to wait if that will pass; nil: it is accepted.
func (p *Producer) refusal(who caller, e *schema.Event) (wrong *fieldError, wait time.Duration) {
	if !who.actsFor(e.UserID) {
		p.metrics.refused.WithLabelValues(refusedForbidden).Inc()
		detail := fmt.Sprintf("is %d, but the caller is user %d, who can act only for themselves", e.UserID, who.user)
		return &fieldError{Field: "user_id", Reason: reasonForbidden, Detail: detail}, 0
	}
	if who.service {
		return nil, 0
	}
	if wait := p.userRate.take(e.UserID); wait > 0 {
		p.metrics.refused.WithLabelValues(refusedUserRate).Inc()
		detail := fmt.Sprintf("is %d, who is above the rate limit of %g per second", e.UserID, p.options.UserRate)
		return &fieldError{Field: "user_id", Reason: reasonRateLimited, Detail: detail}, wait
	}
	return nil, 0
}

func retryIn(w http.ResponseWriter, wait time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
}

// maxBuckets bounds the memory of a limiter, to about 30 MB.
const maxBuckets = 100_000

// limiter has a token bucket for each of the most recently used keys; an evicted key starts again with a full one.
type limiter[K comparable] struct {
	perSecond rate.Limit
	burst     int
	now       func() time.Time

	mu struct {
		sync.Mutex
		buckets *simplelru.LRU[K, *rate.Limiter]
	}
}

// newLimiter returns a limiter with at most size buckets, or nil for a rate of 0: no limit.
func newLimiter[K comparable](perSecond float64, burst, size int) *limiter[K] {
	if perSecond == 0 {
		return nil
	}
	l := &limiter[K]{perSecond: rate.Limit(perSecond), burst: burst, now: time.Now}
	l.mu.buckets, _ = simplelru.NewLRU[K, *rate.Limiter](size, nil) // fails only for a size of 0
	return l
}

// take takes one of the key's tokens and returns 0. If there is none, it returns the time until there is one.
func (l *limiter[K]) take(key K) (wait time.Duration) {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	bucket, ok := l.mu.buckets.Get(key)
	if !ok {
		bucket = rate.NewLimiter(l.perSecond, l.burst)
		l.mu.buckets.Add(key, bucket)
	}
	if bucket.AllowN(now, 1) {
		return 0
	}
	missing := 1 - bucket.TokensAt(now)
	return max(1, time.Duration(missing/float64(l.perSecond)*float64(time.Second)))
}
