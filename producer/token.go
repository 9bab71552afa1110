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

// newTokenParser returns a parser that checks everything in a token; the key of its signature is up to the caller.
func newTokenParser(o Options) *jwt.Parser {
	return jwt.NewParser(
		// Only these are accepted, whatever the token names: never "none", nor a MAC with the public key as its secret.
		jwt.WithValidMethods(o.JWTAlgorithms),
		jwt.WithIssuer(o.JWTIssuer), jwt.WithAudience(o.JWTAudience),
		jwt.WithExpirationRequired(), jwt.WithLeeway(o.JWTLeeway),
		jwt.WithJSONNumber(), // a 64-bit user id does not fit into a float
	)
}

// errCritical rejects critical extensions (RFC 7515, 4.1.11): the producer understands none; the parser does not check.
var errCritical = errors.New("the token has critical extensions")

// bearerChallenge is for requests without a token; invalidToken says what is wrong with one.
const bearerChallenge = `Bearer realm="kudos"`

func invalidToken(detail string) *authError {
	return &authError{fmt.Sprintf(`%s, error="invalid_token", error_description="%s"`, bearerChallenge, detail), detail}
}

// identifyByToken authenticates by bearer token (RFC 6750): a JWT that one of the issuer's keys has signed.
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
		return caller{}, invalidToken("the token does not identify a user: its claim " + p.options.JWTUserClaim +
			" is not a user id (a 64-bit integer above 0, without leading zeros)")
	}
	return caller{user: user}, nil
}

func bearerToken(r *http.Request) (string, error) {
	given := r.Header.Values("Authorization")
	if len(given) != 1 {
		return "", &authError{bearerChallenge,
			fmt.Sprintf("there are %d Authorization headers instead of one: Bearer TOKEN", len(given))}
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", &authError{bearerChallenge, "the Authorization header is not of the form Bearer TOKEN"}
	}
	return token, nil
}

// whyInvalid says what is wrong with a token in fixed words: the content of a token is not trusted.
func whyInvalid(err error) string {
	for _, known := range []struct {
		err    error
		detail string
	}{
		{errUnknownKey, "none of the issuer's keys matches this token"},
		{errCritical, "the token has critical extensions (crit), which are not supported"},
		{jwt.ErrTokenExpired, "the token has expired"},
		{jwt.ErrTokenNotValidYet, "the token is not valid yet"},
		{jwt.ErrTokenInvalidIssuer, "the token is from another issuer"},
		{jwt.ErrTokenInvalidAudience, "the token is for another audience"},
		{jwt.ErrTokenRequiredClaimMissing, "the token lacks one of exp, iss and aud"},
		{jwt.ErrTokenSignatureInvalid, "the token's signature is invalid or uses an algorithm that is not allowed"},
	} {
		if errors.Is(err, known.err) {
			return known.detail
		}
	}
	return "the token cannot be parsed"
}

// hasScope reports whether the token has a scope: in scope (RFC 8693) or, with some issuers, scp, as words or a list.
func hasScope(claims jwt.MapClaims, want string) bool {
	if want == "" {
		return false
	}
	for _, name := range []string{"scope", "scp"} {
		text, _ := claims[name].(string)
		list, _ := claims[name].([]any)
		if slices.Contains(strings.Fields(text), want) || slices.Contains(list, any(want)) {
			return true
		}
	}
	return false
}

func userOf(claim any) (uint64, bool) {
	switch id := claim.(type) {
	case string:
		return parseUser(id)
	case json.Number:
		return parseUser(id.String())
	}
	return 0, false
}
