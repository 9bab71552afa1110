package producer

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit/apikit"
)

// Every way in which a token can fail to be the issuer's, for kudos, valid now, and of a user.
func TestTokens(t *testing.T) {
	key, other, stranger := newECSigner(t, "1"), newRSASigner(t, "2"), newECSigner(t, "1")
	issuer := newIssuer(t, key, other)
	r, _ := startWithClock(t, issuer.options) // the clock stands still, so there is no refresh
	// A MAC with the public key, which everybody has, as its secret.
	public, err := x509.MarshalPKIXPublicKey(&other.secret.(*rsa.PrivateKey).PublicKey)
	require.NoError(t, err)
	mac := signer{"2", jose.HS256, public, nil}
	_, body, _ := strings.Cut(key.token(t, nil), ".")
	unsigned := encodePart([]byte(`{"alg":"none","kid":"1"}`)) + "." + body[:strings.IndexByte(body, '.')+1]
	unknown, nameless := key, key
	unknown.kid, nameless.kid = "3", ""
	set := func(claim string, value any) func(claims) { return func(c claims) { c[claim] = value } }
	without := func(claim string) func(claims) { return func(c claims) { delete(c, claim) } }
	otherScope := func(c claims) { c["sub"], c["scope"] = "feed", "kudos:writer" }
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }

	for name, tt := range map[string]struct {
		token  string
		detail string // "": accepted
	}{
		"valid":                     {key.token(t, nil), ""},
		"issued in the future":      {key.token(t, set("iat", in(time.Minute))), ""},
		"user is a number":          {key.token(t, set("sub", 9)), ""},
		"valid, RSA":                {other.token(t, nil), ""},
		"one of the audiences":      {key.token(t, set("aud", []string{"feed", "kudos"})), ""},
		"expired within leeway":     {key.token(t, set("exp", in(-10*time.Second))), ""},
		"valid soon, within leeway": {key.token(t, set("nbf", in(10*time.Second))), ""},

		"expired":                  {key.token(t, set("exp", in(-time.Minute))), "has expired"},
		"no expiry":                {key.token(t, without("exp")), "lacks one of exp, iss and aud"},
		"not valid yet":            {key.token(t, set("nbf", in(time.Minute))), "is not valid yet"},
		"another issuer":           {key.token(t, set("iss", "https://evil.example.com")), "is from another issuer"},
		"no issuer":                {key.token(t, without("iss")), "lacks one of"},
		"another audience":         {key.token(t, set("aud", "feed")), "is for another audience"},
		"no audience":              {key.token(t, without("aud")), "lacks one of"},
		"another key, same id":     {stranger.token(t, nil), "token's signature is invalid"},
		"HMAC with the public key": {mac.token(t, nil), "or uses an algorithm that is not allowed"},
		"no signature":             {unsigned, "or uses an algorithm that is not allowed"},
		"unknown key":              {unknown.token(t, nil), "none of the issuer's keys matches this token"},
		"no key id, two keys":      {nameless.token(t, nil), "none of the issuer's keys matches this token"},
		"signature of another token": {swapSignature(key.token(t, nil), key.token(t, set("sub", "8"))),
			"token's signature is invalid"},
		"not a token":              {"me", "cannot be parsed"},
		"user is not a number":     {key.token(t, set("sub", "me")), "does not identify a user"},
		"user with a leading zero": {key.token(t, set("sub", "09")), "does not identify a user"},
		"user 0":                   {key.token(t, set("sub", "0")), "does not identify a user"},
		"no user":                  {key.token(t, without("sub")), "does not identify a user"},
		"another scope":            {key.token(t, otherScope), "does not identify a user"},
		"user is a list":           {key.token(t, set("sub", []string{"9"})), "does not identify a user"},
		"expiry is not a time":     {key.token(t, set("exp", "tomorrow")), "cannot be parsed"},
		"user with a fraction":     {key.token(t, set("sub", json.Number("9.0"))), "does not identify a user"},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.putAs(tt.token, like)
			if a.T = t; tt.detail == "" {
				a.Require(accepted)
				return
			}
			requireUnauthenticated(a, tt.detail)
			require.Contains(t, a.Header.Get("WWW-Authenticate"),
				`Bearer realm="kudos", error="invalid_token", error_description="`)
		})
	}
	r.consume(7)
	require.EqualValues(t, 1, issuer.asked.Load(), "during the pause, unknown keys must not query the issuer")
}

// TestRegressUnknownCrit: a token whose header names a critical extension was accepted, although the producer
// understands none (RFC 7515, 4.1.11).
func TestRegressUnknownCrit(t *testing.T) {
	key := newECSigner(t, "1")
	r := start(t, newIssuer(t, key).options)
	for name, crit := range map[string]any{
		"unknown":           []string{"https://example.com/must-understand"},
		"of RFC 7797":       []string{"b64"},
		"empty list":        []string{},
		"not a list":        "exp",
		"null":              nil,
		"registered header": []string{"alg"},
	} {
		t.Log(name)
		header := map[string]any{"crit": crit, "https://example.com/must-understand": true, "b64": true}
		requireUnauthenticated(r.putAs(key.token(t, nil, header), like), "has critical extensions (crit)")
	}
	require.Zero(t, r.written())
	r.putAs(key.token(t, nil, map[string]any{"https://example.com/optional": true}), like).Require(accepted)
}

func swapSignature(token, other string) string {
	return token[:strings.LastIndexByte(token, '.')] + other[strings.LastIndexByte(other, '.'):]
}

func TestTokenNeedsOneHeader(t *testing.T) {
	key := newECSigner(t, "1")
	r := start(t, newIssuer(t, key).options)
	token := key.token(t, nil)
	const challenge, realm = "WWW-Authenticate", `Bearer realm="kudos"`
	for _, bad := range []string{"Basic OTo5", "Bearer", "Bearer ", token, "Bearer a."} {
		detail := "is not of the form Bearer TOKEN"
		if bad == "Bearer a." {
			detail = "cannot be parsed"
		}
		a := requireUnauthenticated(r.put(like, "Authorization", bad), detail)
		require.True(t, strings.HasPrefix(a.Header.Get(challenge), realm))
	}
	requireUnauthenticated(r.put(like+"?access_token="+token), "there are 0 Authorization headers instead of one").
		RequireHeader(challenge, realm) // RFC 6750, 3.1: no error code without credentials
	apikit.ReadFrom(t, r.Dial("PUT "+like+" HTTP/1.1\r\nHost: x\r\n"+
		"Authorization: Bearer "+token+"\r\nAuthorization: Bearer x\r\n\r\n")).Require(http.StatusUnauthorized)
	require.Zero(t, r.written())

	r.put(like, "Authorization", "bearer  "+token).Require(accepted)
}

// A user acts as themselves; a service for everybody, in batches too.
func TestTokensOfUsersAndServices(t *testing.T) {
	key := newECSigner(t, "1")
	r := start(t, newIssuer(t, key).options)
	user := key.token(t, nil)
	requireRefused(r.putAs(user, "/v1/posts/7/likes/8"), http.StatusForbidden, "forbidden", "user_id is 8")
	r.putAs(user, like).Require(accepted)

	scp := func(scopes any) func(claims) {
		return func(c claims) { c["sub"], c["scp"] = "feed", scopes }
	}
	for name, service := range map[string]string{
		"scope":             key.serviceToken(t),
		"scp as a list":     key.token(t, scp([]string{"x", serviceScope})),
		"scp as a string":   key.token(t, scp(serviceScope)),
		"without a subject": key.token(t, func(c claims) { delete(c, "sub"); c["scope"] = serviceScope }),
	} {
		t.Log(name)
		r.putAs(service, "/v1/posts/7/likes/8").Require(accepted)
		r.postLinesAs(bearer(service), "", line(7, 1), line(7, 2)).Require(accepted)
	}
	decodeBatch(r.postLinesAs(bearer(user), "", line(7, 9), line(7, 2)), 1, 1, 0)
	r.consume(1 + 4*3 + 1)
}

func TestNoServiceWithoutAScope(t *testing.T) {
	key := newECSigner(t, "1")
	r := start(t, func(o *Options) { newIssuer(t, key).options(o); o.ServiceScope = "" })
	for _, scope := range []string{"", " ", serviceScope} {
		token := key.token(t, func(c claims) { c["scope"], c["scp"] = scope, []string{scope} })
		r.putAs(token, "/v1/posts/7/likes/8").Require(http.StatusForbidden)
	}
}

// The user id may be a number in another claim, and keeps all 64 bits.
func TestUserClaim(t *testing.T) {
	key := newECSigner(t, "1")
	r := start(t, func(o *Options) { newIssuer(t, key).options(o); o.JWTUserClaim = "https://example.com/uid" })
	token := func(id any) string { return key.token(t, func(c claims) { c["https://example.com/uid"] = id }) }
	const most = "18446744073709551615"
	r.putAs(token(json.Number(most)), "/v1/posts/7/likes/"+most).Require(accepted)
	r.putAs(token(most), "/v1/posts/7/likes/"+most).Require(accepted)
	r.putAs(token(json.Number("18446744073709551614")), "/v1/posts/7/likes/"+most).Require(http.StatusForbidden)
	r.putAs(token(math.MaxInt32), "/v1/posts/7/likes/2147483647").Require(accepted)
	requireUnauthenticated(r.putAs(key.token(t, nil), like), "its claim https://example.com/uid is not a user id")
}
