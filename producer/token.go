package producer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

// newTokenParser checks all of a token but its signature's key.
func newTokenParser(o Options) *jwt.Parser {
	return jwt.NewParser(
		// The token's own word on its algorithm is taken from this list only: neither "none" nor
		// a MAC with a public key for its secret is ever looked at.
		jwt.WithValidMethods(o.JWTAlgorithms),
		jwt.WithIssuer(o.JWTIssuer),
		jwt.WithAudience(o.JWTAudience),
		jwt.WithExpirationRequired(),
		jwt.WithLeeway(o.JWTLeeway),
		// A user id of 64 bits is no float.
		jwt.WithJSONNumber(),
	)
}

// errCritical tells of a token with extensions that its recipient must understand (RFC 7515, 4.1.11). The
// producer understands none, and the parser does not look.
var errCritical = errors.New("the token has critical extensions")

// bearerChallenge is for those who have shown nothing; invalidToken says what is wrong.
const bearerChallenge = `Bearer realm="kudos"`

func invalidToken(detail string) *authError {
	return &authError{fmt.Sprintf(`%s, error="invalid_token", error_description="%s"`, bearerChallenge, detail), detail}
}

// identifyByToken believes bearer tokens (RFC 6750): JWTs that a key of the issuer has signed.
func (p *Producer) identifyByToken(r *http.Request) (caller, error) {
	token, err := bearerToken(r)
	if err != nil {
		return caller{}, err
	}
	claims := jwt.MapClaims{}
	_, err = p.tokens.ParseWithClaims(token, claims, func(token *jwt.Token) (any, error) {
		if _, ok := token.Header["crit"]; ok {
			return nil, errCritical
		}
		kid, _ := token.Header["kid"].(string)
		return p.keys.find(r.Context(), kid, token.Method.Alg())
	})
	switch {
	case errors.Is(err, errNoKeys):
		return caller{}, errNoKeys
	case err != nil:
		return caller{}, invalidToken(whyInvalid(err))
	case hasScope(claims, p.options.ServiceScope):
		return caller{anybody: true, service: true}, nil
	}
	user, ok := userOf(claims[p.options.JWTUserClaim])
	if !ok {
		return caller{}, invalidToken("the token names no user: its claim " + p.options.JWTUserClaim +
			" is no user id (a whole number above 0 of 64 bits, without leading zeros)")
	}
	return caller{user: user}, nil
}

// bearerToken is the one token of a request.
func bearerToken(r *http.Request) (string, error) {
	given := r.Header.Values("Authorization")
	if len(given) != 1 {
		return "", &authError{bearerChallenge,
			fmt.Sprintf("there are %d headers Authorization, not one: Bearer TOKEN", len(given))}
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", &authError{bearerChallenge, "the header Authorization is not Bearer TOKEN"}
	}
	return token, nil
}

// whyInvalid says in words of our own what is wrong with a token: what stands in it is its sender's.
func whyInvalid(err error) string {
	for _, known := range []struct {
		err    error
		detail string
	}{
		{errUnknownKey, "no key of the issuer is for this token"},
		{errCritical, "the token has critical extensions (crit), of which none is supported"},
		{jwt.ErrTokenExpired, "the token has expired"},
		{jwt.ErrTokenNotValidYet, "the token is not valid yet"},
		{jwt.ErrTokenInvalidIssuer, "the token is another issuer's"},
		{jwt.ErrTokenInvalidAudience, "the token is for another audience"},
		{jwt.ErrTokenRequiredClaimMissing, "the token lacks one of exp, iss and aud"},
		{jwt.ErrTokenSignatureInvalid,
			"the signature of the token is not valid, or of an algorithm that is not allowed"},
	} {
		if errors.Is(err, known.err) {
			return known.detail
		}
	}
	return "the token cannot be read"
}

// hasScope says whether the token has a scope: in scope (RFC 8693), a text with spaces, or
// in scp, where some issuers have it, as a text or a list.
func hasScope(claims jwt.MapClaims, want string) bool {
	if want == "" {
		return false
	}
	for _, name := range []string{"scope", "scp"} {
		switch has := claims[name].(type) {
		case string:
			if slices.Contains(strings.Fields(has), want) {
				return true
			}
		case []any:
			if slices.Contains(has, any(want)) {
				return true
			}
		}
	}
	return false
}

// userOf is the user that a claim names, as a text or a number.
func userOf(claim any) (uint64, bool) {
	switch id := claim.(type) {
	case string:
		return parseUser(id)
	case json.Number:
		return parseUser(id.String())
	}
	return 0, false
}
