package producer

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
)

const (
	issuerName   = "https://issuer.example.com"
	serviceScope = "kudos:write"
)

func keySetOf(t testing.TB, keys ...any) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"keys": keys})
	require.NoError(t, err)
	return text
}

type issuer struct {
	t      testing.TB
	server *httptest.Server
	asked  atomic.Int64           // number of requests
	keys   atomic.Pointer[[]byte] // nil: unavailable
}

func newIssuer(t testing.TB, signers ...signer) *issuer {
	i := &issuer{t: t}
	i.publish(signers...)
	i.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.asked.Add(1)
		if keys := i.keys.Load(); keys != nil {
			_, _ = w.Write(*keys)
		} else {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(i.server.Close)
	return i
}

func (i *issuer) publish(signers ...signer) {
	var keys []any
	for _, s := range signers {
		keys = append(keys, s.jwk)
	}
	set := keySetOf(i.t, keys...)
	i.keys.Store(&set)
}

func (i *issuer) options(o *Options) {
	o.Auth, o.JWKS, o.JWTIssuer, o.JWTAudience = AuthJWT, i.server.URL, issuerName, "kudos"
}

type claims = map[string]any

// signer signs tokens with one key, whose public half is jwk.
type signer struct {
	kid    string
	method jose.SignatureAlgorithm
	secret any
	jwk    map[string]any
}

func newECSigner(t testing.TB, kid string) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	point, err := key.PublicKey.Bytes() // 4, x, y
	require.NoError(t, err)
	return signer{kid, jose.ES256, key, map[string]any{
		"kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "alg": "ES256",
		"x": encodePart(point[1:33]), "y": encodePart(point[33:]),
	}}
}

func newRSASigner(t testing.TB, kid string) signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	return signer{kid, jose.RS256, key, map[string]any{
		"kty": "RSA", "kid": kid, "n": encodePart(key.N.Bytes()), "e": encodePart(big.NewInt(int64(key.E)).Bytes()),
	}}
}

func encodePart(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// token returns a token of user 9. It is valid, except for what change does to its claims and what header adds.
func (s signer) token(t testing.TB, change func(claims), header ...map[string]any) string {
	t.Helper()
	c := claims{"iss": issuerName, "aud": "kudos", "sub": "9", "exp": time.Now().Add(time.Hour).Unix()}
	if change != nil {
		change(c)
	}
	var options jose.SignerOptions
	for _, more := range header {
		for name, value := range more {
			options.WithHeader(jose.HeaderKey(name), value)
		}
	}
	if s.kid != "" {
		options.WithHeader("kid", s.kid)
	}
	by, err := jose.NewSigner(jose.SigningKey{Algorithm: s.method, Key: s.secret}, &options)
	require.NoError(t, err)
	text, err := jwt.Signed(by).Claims(c).Serialize()
	require.NoError(t, err)
	return text
}

func (s signer) serviceToken(t testing.TB) string {
	t.Helper()
	return s.token(t, func(c claims) { c["sub"], c["scope"] = "feed", "openid "+serviceScope })
}

// clock is a time that only the test advances.
type clock struct{ nanos atomic.Int64 }

func startWithClock(t testing.TB, change func(*Options)) (*rig, *clock) {
	t.Helper()
	c := &clock{}
	c.nanos.Store(time.Now().UnixNano())
	r := newRig(t, change)
	if r.keys != nil {
		r.keys.now = c.now
	}
	if r.userRate != nil {
		r.userRate.now = c.now
	}
	if r.addressRate != nil {
		r.addressRate.now = c.now
	}
	r.StartUntilReady()
	return r, c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.nanos.Load()) }
func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

func (r *rig) putAs(token, path string) apikit.Answer {
	r.T.Helper()
	return r.put(path, bearer(token)...)
}

// A new key of the issuer is found by the first token that names it; a withdrawn key no longer verifies anything. The
// keys may be at a URL or in a file.
func TestRotatedKey(t *testing.T) {
	first, second := newECSigner(t, "1"), newECSigner(t, "2")
	issuer, path := newIssuer(t, first), filepath.Join(t.TempDir(), "jwks.json")
	for source, publish := range map[string]func(s signer){
		issuer.server.URL: func(s signer) { issuer.publish(s) },
		path:              func(s signer) { require.NoError(t, os.WriteFile(path, keySetOf(t, s.jwk), 0o600)) },
	} {
		publish(first)
		r, clock := startWithClock(t, func(o *Options) { issuer.options(o); o.JWKS = source })
		r.keys.wait = time.Hour // the test hangs if no refresh comes
		put := func(s signer) apikit.Answer { return r.putAs(s.token(t, nil), like) }
		put(first).Require(accepted)

		publish(second)
		const unknown = "none of the issuer's keys matches this token"
		requireUnauthenticated(put(second), unknown) // the keys were just read
		clock.advance(lookPause)
		put(second).Require(accepted)
		requireUnauthenticated(put(first), unknown)
		read := r.Metric("kudos_producer_keys_read_timestamp_seconds")
		require.EqualValues(t, float64(clock.now().UnixMilli())/1000, read)
		r.End()
	}
	require.EqualValues(t, 2, issuer.asked.Load())
}

func TestUnknownKeysAskTheIssuerOncePerPause(t *testing.T) {
	key := newECSigner(t, "1")
	issuer := newIssuer(t, key)
	r, clock := startWithClock(t, issuer.options)
	key.kid = "made up"
	token := key.token(t, nil)
	for pause := range 3 {
		clock.advance(lookPause)
		var answers [20]<-chan apikit.Answer
		for i := range answers {
			answers[i] = r.Later(http.MethodPut, like, "", bearer(token)...)
		}
		for _, answered := range answers {
			(<-answered).Require(http.StatusUnauthorized)
		}
		require.EqualValues(t, 2+pause, issuer.asked.Load())
	}
}

// While the issuer is unavailable, a producer with keys continues. One without is not ready, and recovers by itself.
func TestIssuerUnavailable(t *testing.T) {
	key := newECSigner(t, "1")
	issuer, clock := newIssuer(t, key), &clock{}
	issuer.keys.Store(nil)
	r := newRig(t, issuer.options)
	r.keys.now, r.keys.retry = clock.now, time.Millisecond
	r.Start()
	r.WaitFor("the producer must query the issuer again", func() bool { return issuer.asked.Load() > 1 })
	require.ErrorContains(t, r.Ready(), "the keys of producer.jwks cannot be read: "+issuer.server.URL+" answers 503")
	requireRefused(r.putAs(key.token(t, nil), like), 503, "keys-unavailable", "have not been read yet").
		RequireHeader("Retry-After", "1")
	r.requireCount(0, "keys_read_timestamp_seconds")

	issuer.publish(key)
	r.WaitFor("the producer must become ready", func() bool { return r.Ready() == nil })
	issuer.keys.Store(nil)
	clock.advance(lookPause)
	unknown := key
	unknown.kid = "2"
	asked := issuer.asked.Load()
	r.putAs(unknown.token(t, nil), like).Require(http.StatusUnauthorized)
	require.Greater(t, issuer.asked.Load(), asked)
	r.putAs(key.token(t, nil), like).Require(accepted)
	require.NoError(t, r.Ready())
}

// The response of the JWKS source is bounded, and redirects are not followed.
func TestSourceOfKeysIsBounded(t *testing.T) {
	set := keySetOf(t, newECSigner(t, "1").jwk)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/elsewhere":
			http.Redirect(w, req, "/keys", http.StatusFound)
		case "/large":
			_, _ = w.Write([]byte(strings.Repeat(" ", maxKeysBytes)))
		}
		_, _ = w.Write(set)
	}))
	t.Cleanup(server.Close)
	for path, want := range map[string]string{
		"/keys": "", "/elsewhere": "answers 302", "/large": "has more than 1048576 bytes",
	} {
		o := DefaultOptions()
		o.JWKS = server.URL + path
		keys, err := newKeyring(o, testkit.Log()).readSource(t.Context())
		if want == "" {
			require.NoError(t, err)
			require.Len(t, keys, 1)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

func TestParseKeys(t *testing.T) {
	ec, rsa := newECSigner(t, "1").jwk, newRSASigner(t, "2").jwk
	but := func(jwk map[string]any, changes ...string) map[string]any {
		jwk = maps.Clone(jwk)
		for i := 0; i < len(changes); i += 2 {
			jwk[changes[i]] = changes[i+1]
		}
		return jwk
	}
	public, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	ed := map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": "3", "x": encodePart(public)}
	large := func(bytes int) string { return encodePart(append([]byte{0x80}, make([]byte, bytes-1)...)) }
	parse := func(keys ...any) (keySet, error) { return parseKeys(keySetOf(t, keys...)) }
	keys, err := parse(
		ec, rsa, ed,
		// An issuer may have such keys too; they do not prevent the use of the others.
		but(ec, "kid", "4", "use", "enc"), but(ec, "kid", "5", "kty", "AKP"), but(ec, "kid", "6", "crv", "secp256k1"),
		map[string]any{"kty": 7}, map[string]any{"kty": "oct", "kid": "7", "k": "c2VjcmV0"},
		but(rsa, "kid", "8", "n", large(1024)),
	)
	require.NoError(t, err)
	require.Len(t, keys, 4)
	for kid, alg := range map[string]string{"1": "ES256", "2": "PS512", "3": "EdDSA"} {
		_, err := keys.find(kid, alg)
		require.NoError(t, err, "%s with %s", kid, alg)
	}
	_, err = keys.find("1", "ES384")
	require.ErrorIs(t, err, errUnknownKey, "a key must work only with its own algorithm")

	one, err := parse(ec)
	require.NoError(t, err)
	_, err = one.find("", "ES256")
	require.NoError(t, err, "a single key needs no id")

	zeros := encodePart(make([]byte, 32))
	for name, c := range map[string]struct {
		jwk  map[string]any
		want string
	}{
		"unsupported EC curve":  {but(ec, "crv", "P-224"), "key 1: "},
		"short coordinate":      {but(ec, "x", encodePart(make([]byte, 31))), "key 1: "},
		"point off the curve":   {but(ec, "x", zeros, "y", zeros), "not on declared curve"},
		"invalid base64":        {but(ec, "x", "!"), "illegal base64 data"},
		"short RSA key":         {but(rsa, "n", large(128)), "has 1024 bits, not 2048 to 8192"},
		"long RSA key":          {but(rsa, "n", large(1025)), "or RSA modulus size"},
		"encryption key":        {but(rsa, "use", "enc"), `is not for signatures, but for "enc"`},
		"unsupported OKP curve": {but(ed, "crv", "X25519"), "key 1: "},
		"symmetric key":         {map[string]any{"kty": "oct", "kid": "7", "k": "c2VjcmV0"}, "is not a public key"},
		"missing coordinates":   {map[string]any{"kty": "EC", "crv": "P-256"}, "key 1: "},
	} {
		_, err := parse(c.jwk)
		require.ErrorContains(t, err, "has no usable key", name)
		require.ErrorContains(t, err, c.want, name)
	}
	_, err = parse()
	require.EqualError(t, err, "has no usable key")
	for _, text := range []string{"", "{", "[]", `{"keys":7}`} {
		_, err := parseKeys([]byte(text))
		require.ErrorContains(t, err, "is not a JSON Web Key Set", text)
	}
	_, err = parseKeys([]byte("<html>"))
	require.ErrorAs(t, err, new(*json.SyntaxError))
}
