package producer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

const (
	issuerName   = "https://issuer.example.com"
	serviceScope = "kudos:write"
)

// issuer serves the keys that tokens are verified with.
type issuer struct {
	server *httptest.Server
	asked  atomic.Int64 // how often it was
	mu     struct {
		sync.Mutex
		keys []map[string]any
		away bool
	}
}

func newIssuer(t *testing.T, signers ...signer) *issuer {
	i := &issuer{}
	i.publish(signers...)
	i.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.asked.Add(1)
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.mu.away {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": i.mu.keys})
	}))
	t.Cleanup(i.server.Close)
	return i
}

// publish has it serve the keys of these, and no others any more.
func (i *issuer) publish(signers ...signer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.keys = nil
	for _, s := range signers {
		i.mu.keys = append(i.mu.keys, s.jwk)
	}
}

func (i *issuer) goAway(away bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mu.away = away
}

// options are those of a producer that takes its tokens.
func (i *issuer) options(o *Options) {
	o.Auth, o.JWKS, o.JWTIssuer, o.JWTAudience = AuthJWT, i.server.URL, issuerName, "kudos"
}

// signer signs tokens with one key, whose public half is jwk.
type signer struct {
	kid    string
	method jwt.SigningMethod
	secret any
	jwk    map[string]any
}

func newECSigner(t *testing.T, kid string) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	point, err := key.PublicKey.Bytes() // 4, x, y
	require.NoError(t, err)
	return signer{kid, jwt.SigningMethodES256, key, map[string]any{
		"kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "alg": "ES256", "x": encodePart(point[1:33]), "y": encodePart(point[33:]),
	}}
}

func newRSASigner(t *testing.T, kid string) signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return signer{kid, jwt.SigningMethodRS256, key, map[string]any{
		"kty": "RSA", "kid": kid, "n": encodePart(key.N.Bytes()), "e": encodePart(big.NewInt(int64(key.E)).Bytes()),
	}}
}

func encodePart(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// token is one of user 9 that is valid, but for what change does.
func (s signer) token(t *testing.T, change func(jwt.MapClaims)) string {
	t.Helper()
	claims := jwt.MapClaims{"iss": issuerName, "aud": "kudos", "sub": "9", "exp": time.Now().Add(time.Hour).Unix()}
	if change != nil {
		change(claims)
	}
	return s.sign(t, claims, nil)
}

// tokenWithHeader is a valid one whose header has more than it needs.
func (s signer) tokenWithHeader(t *testing.T, header map[string]any) string {
	t.Helper()
	return s.sign(t, jwt.MapClaims{"iss": issuerName, "aud": "kudos", "sub": "9", "exp": time.Now().Add(time.Hour).Unix()}, header)
}

func (s signer) sign(t *testing.T, claims jwt.MapClaims, header map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(s.method, claims)
	maps.Copy(token.Header, header)
	if s.kid != "" {
		token.Header["kid"] = s.kid
	}
	text, err := token.SignedString(s.secret)
	require.NoError(t, err)
	return text
}

func (s signer) serviceToken(t *testing.T) string {
	t.Helper()
	return s.token(t, func(c jwt.MapClaims) { c["sub"], c["scope"] = "feed", "openid "+serviceScope })
}

// clock is a time that only its test moves on.
type clock struct{ nanos atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.nanos.Store(time.Now().UnixNano())
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.nanos.Load()) }
func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

// runUntilReady runs a producer that newRig has made.
func (r *rig) runUntilReady() {
	r.t.Helper()
	r.run()
	require.Eventually(r.t, func() bool { return r.Ready() == nil }, patience, time.Millisecond, "the producer must become ready")
}

// putAs likes with a token.
func (r *rig) putAs(token, path string) answerTo {
	r.t.Helper()
	return r.send(http.MethodPut, path, "", "Authorization", "Bearer "+token)
}

// requireProblem wants a problem of a type, whose detail has some words.
func (a answerTo) requireProblem(t *testing.T, status int, slug, detail string) {
	t.Helper()
	require.Equal(t, status, a.status, a.body)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	var p struct {
		Type, Detail string
		Status       int
	}
	a.decode(t, &p)
	require.Equal(t, "urn:kudos:problem:"+slug, p.Type)
	require.Equal(t, status, p.Status)
	require.Contains(t, p.Detail, detail)
	require.Contains(t, p.Detail, "; nothing of it was written")
}
