package producer

import (
	"fmt"
	"net/http"
	"strconv"
)

// The ways to know who sends a request: the values of Options.Auth.
const (
	AuthNone    = "none"    // nobody is asked: what the path or the body says holds
	AuthGateway = "gateway" // a gateway says it, in a header
	AuthJWT     = "jwt"     // a token says it, which the issuer has signed
)

// caller is who sends a request. The zero caller acts for nobody.
type caller struct {
	user    uint64 // the user, if it is one
	anybody bool   // may act for every user
	service bool   // has the service scope: a user's rate does not hold it
}

func (c caller) actsFor(user uint64) bool { return c.anybody || c.user == user }

// identify finds out who sends a request. An authError says why that is not known; any
// other error that it cannot be found out now.
type identify func(r *http.Request) (caller, error)

// authError is answered with 401.
type authError struct {
	challenge string // what WWW-Authenticate says
	detail    string
}

func (e *authError) Error() string { return e.detail }

func newIdentify(o Options, keys *keyring) (identify, error) {
	switch o.Auth {
	case AuthNone:
		return func(*http.Request) (caller, error) { return caller{anybody: true}, nil }, nil
	case AuthGateway:
		trusted, err := parseNetworks(o.AuthTrustedCIDRs)
		if err != nil {
			return nil, fmt.Errorf("producer.auth_trusted_cidrs: %w", err)
		}
		return gateway{o.AuthHeader, trusted}.identify, nil
	}
	return newTokens(o, keys).identify, nil
}

// gateway believes a header that comes from some addresses. Whoever is there has to
// authenticate the user, and to take the header away from what users send.
type gateway struct {
	header  string
	trusted networks
}

// gatewayChallenge is there because a 401 needs one: there is nothing that a client could do.
const gatewayChallenge = `Gateway realm="kudos"`

func (g gateway) identify(r *http.Request) (caller, error) {
	if !g.trusted.contain(parseAddr(r.RemoteAddr)) {
		return caller{}, &authError{gatewayChallenge, "the request does not come from the gateway (producer.auth_trusted_cidrs)"}
	}
	given := r.Header.Values(g.header)
	if len(given) != 1 {
		return caller{}, &authError{gatewayChallenge, fmt.Sprintf("the gateway sends %d headers %s, not one", len(given), g.header)}
	}
	user, ok := parseUser(given[0])
	if !ok {
		return caller{}, &authError{gatewayChallenge, fmt.Sprintf("the header %s is no user id: a whole number above 0 of 64 bits, without leading zeros", g.header)}
	}
	return caller{user: user}, nil
}

// parseUser reads the user id of a credential. Only the shortest form is one, so that no
// two names of whoever authenticates are the same user here.
func parseUser(text string) (uint64, bool) {
	id, err := strconv.ParseUint(text, 10, 64)
	return id, err == nil && id > 0 && strconv.FormatUint(id, 10) == text
}
