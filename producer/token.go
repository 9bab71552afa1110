package producer

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

var (
	errCritical     = errors.New("the token has critical extensions")
	errMissingClaim = errors.New("the token lacks a claim")
)

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
	claims, err := p.verify(r.Context(), token)
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

// verify returns the claims of a valid token: from the issuer, for kudos, now, and signed by an accepted algorithm,
// whatever the token names: never "none", nor a MAC with the public key as its secret.
func (p *Producer) verify(ctx context.Context, text string) (claims map[string]json.RawMessage, err error) {
	token, err := jwt.ParseSigned(text, p.algorithms)
	if err != nil {
		return nil, err
	}
	// The library understands one critical extension (RFC 7515, 4.1.11), the producer none.
	first, _, _ := strings.Cut(text, ".")
	raw, _ := base64.RawURLEncoding.DecodeString(first) // neither fails: the library has parsed it
	var names map[string]json.RawMessage
	_ = json.Unmarshal(raw, &names)
	if _, ok := names["crit"]; ok {
		return nil, errCritical
	}
	header := token.Headers[0]
	key, err := p.keys.find(ctx, header.KeyID, header.Algorithm)
	if err != nil {
		return nil, err
	}
	var given struct {
		jwt.Claims
		Subject  any `json:"sub"` // may be a number
		ID       any `json:"jti"`
		IssuedAt any `json:"iat"` // the issuer's clock may be ahead
	}
	if err := token.Claims(key, &given, &claims); err != nil {
		return nil, err
	}
	if given.Expiry == nil || given.Issuer == "" || len(given.Audience) == 0 {
		return nil, errMissingClaim
	}
	want := jwt.Expected{Issuer: p.options.JWTIssuer, AnyAudience: jwt.Audience{p.options.JWTAudience}}
	return claims, given.ValidateWithLeeway(want, p.options.JWTLeeway)
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
	const badSignature = "the token's signature is invalid or uses an algorithm that is not allowed"
	for _, known := range []struct {
		err    error
		detail string
	}{
		{errUnknownKey, "none of the issuer's keys matches this token"},
		{errCritical, "the token has critical extensions (crit), which are not supported"},
		{jwt.ErrExpired, "the token has expired"},
		{jwt.ErrNotValidYet, "the token is not valid yet"},
		{jwt.ErrInvalidIssuer, "the token is from another issuer"},
		{jwt.ErrInvalidAudience, "the token is for another audience"},
		{errMissingClaim, "the token lacks one of exp, iss and aud"},
		{jose.ErrCryptoFailure, badSignature},
	} {
		if errors.Is(err, known.err) {
			return known.detail
		}
	}
	if errors.As(err, new(*jose.ErrUnexpectedSignatureAlgorithm)) {
		return badSignature
	}
	return "the token cannot be parsed"
}

// hasScope reports whether the token has a scope: in scope (RFC 8693) or, with some issuers, scp, as words or a list.
func hasScope(claims map[string]json.RawMessage, want string) bool {
	if want == "" {
		return false
	}
	for _, name := range []string{"scope", "scp"} {
		var scopes any
		_ = json.Unmarshal(claims[name], &scopes) // the token is valid JSON; nil without the claim
		text, _ := scopes.(string)
		list, _ := scopes.([]any)
		if slices.Contains(strings.Fields(text), want) || slices.Contains(list, any(want)) {
			return true
		}
	}
	return false
}

// userOf reads a user id from a string or a number, which may exceed what a float holds exactly.
func userOf(claim json.RawMessage) (uint64, bool) {
	var text string
	if json.Unmarshal(claim, &text) != nil {
		text = string(claim)
	}
	return parseUser(text)
}
