package producer

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A key that the issuer has taken into use is found by the first token that names it; what
// it has taken back verifies nothing any more.
func TestRotatedKey(t *testing.T) {
	first, second := newECSigner(t, "1"), newECSigner(t, "2")
	issuer, clock := newIssuer(t, first), newClock()
	r := newRig(t, issuer.options)
	r.access.keys.now, r.access.keys.wait = clock.now, time.Hour // nobody waits where nothing comes
	r.runUntilReady()
	r.putAs(first.token(t, nil), "/v1/posts/7/likes/9").place(t)

	issuer.publish(second)
	const unknown = "no key of the issuer is for this token"
	r.putAs(second.token(t, nil), "/v1/posts/7/likes/9").requireProblem(t, http.StatusUnauthorized, "unauthenticated", unknown)
	require.EqualValues(t, 1, issuer.asked.Load(), "the last look was just now")

	clock.advance(lookPause)
	r.putAs(second.token(t, nil), "/v1/posts/7/likes/9").place(t)
	r.putAs(first.token(t, nil), "/v1/posts/7/likes/9").requireProblem(t, http.StatusUnauthorized, "unauthenticated", unknown)
	require.EqualValues(t, 2, issuer.asked.Load())
	require.EqualValues(t, float64(clock.now().UnixMilli())/1000, r.metric("kudos_producer_keys_read_timestamp_seconds"))
}

// However many tokens with made-up keys come, the issuer is asked once in each pause.
func TestUnknownKeysAskTheIssuerOncePerPause(t *testing.T) {
	key := newECSigner(t, "1")
	issuer, clock := newIssuer(t, key), newClock()
	r := newRig(t, issuer.options)
	r.access.keys.now = clock.now
	r.runUntilReady()
	key.kid = "made up"
	token := key.token(t, nil)
	for pause := range 3 {
		clock.advance(lookPause)
		var all sync.WaitGroup
		statuses := make([]int, 20)
		for i := range statuses {
			all.Go(func() {
				a, _ := r.trySend(http.MethodPut, "/v1/posts/7/likes/9", strings.NewReader(""), "Authorization", "Bearer "+token)
				statuses[i] = a.status
			})
		}
		all.Wait()
		for _, status := range statuses {
			require.Equal(t, http.StatusUnauthorized, status)
		}
		require.EqualValues(t, 2+pause, issuer.asked.Load())
	}
}

// While the issuer is away a producer that knows its keys goes on; one that does not is
// not ready, and becomes it by itself.
func TestIssuerIsAway(t *testing.T) {
	key := newECSigner(t, "1")
	issuer, clock := newIssuer(t, key), newClock()
	issuer.goAway(true)
	r := newRig(t, issuer.options)
	r.access.keys.now, r.access.keys.retry = clock.now, time.Millisecond
	r.run()
	require.Eventually(t, func() bool { return issuer.asked.Load() > 1 }, patience, time.Millisecond)
	require.ErrorContains(t, r.Ready(), "the keys of producer.jwks cannot be read: "+issuer.server.URL+" answers 503")
	a := r.putAs(key.token(t, nil), "/v1/posts/7/likes/9")
	a.requireProblem(t, http.StatusServiceUnavailable, "keys-unavailable", "have not been read yet")
	require.Equal(t, "1", a.header.Get("Retry-After"))
	require.Zero(t, r.metric("kudos_producer_keys_read_timestamp_seconds"))

	issuer.goAway(false)
	require.Eventually(t, func() bool { return r.Ready() == nil }, patience, time.Millisecond)
	issuer.goAway(true)
	clock.advance(lookPause)
	unknown := key
	unknown.kid = "2"
	asked := issuer.asked.Load()
	require.Equal(t, http.StatusUnauthorized, r.putAs(unknown.token(t, nil), "/v1/posts/7/likes/9").status)
	require.Greater(t, issuer.asked.Load(), asked)
	r.putAs(key.token(t, nil), "/v1/posts/7/likes/9").place(t)
	require.NoError(t, r.Ready())
}

// Keys may be in a file, too; it is read again as an address is.
func TestKeysOfAFile(t *testing.T) {
	first, second := newECSigner(t, "1"), newECSigner(t, "2")
	path := filepath.Join(t.TempDir(), "jwks.json")
	write := func(s signer) {
		text, err := json.Marshal(map[string]any{"keys": []any{s.jwk}})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, text, 0o600))
	}
	write(first)
	clock := newClock()
	r := newRig(t, func(o *Options) { newIssuer(t).options(o); o.JWKS = path })
	r.access.keys.now, r.access.keys.wait = clock.now, time.Hour // nobody waits where nothing comes
	r.runUntilReady()
	r.putAs(first.token(t, nil), "/v1/posts/7/likes/9").place(t)
	write(second)
	clock.advance(lookPause)
	r.putAs(second.token(t, nil), "/v1/posts/7/likes/9").place(t)
}

// What the source may answer is bounded, and where it is was set.
func TestSourceOfKeysIsBounded(t *testing.T) {
	key := newECSigner(t, "1")
	set, err := json.Marshal(map[string]any{"keys": []any{key.jwk}})
	require.NoError(t, err)
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
		keys, err := newKeyring(o, slog.New(slog.DiscardHandler)).readSource(t.Context())
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
	ed := map[string]any{"kty": "OKP", "crv": "Ed25519", "kid": "3", "x": encodePart(make([]byte, 32))}
	parse := func(keys ...any) (keySet, error) {
		text, err := json.Marshal(map[string]any{"keys": keys})
		require.NoError(t, err)
		return parseKeys(text)
	}
	keys, err := parse(
		ec, rsa, ed,
		// Of these an issuer may have some; they keep nobody from the others.
		but(ec, "kid", "4", "use", "enc"), but(ec, "kid", "5", "kty", "AKP"), but(ec, "kid", "6", "crv", "secp256k1"), map[string]any{"kty": 7},
		map[string]any{"kty": "oct", "kid": "7", "k": "c2VjcmV0"},
	)
	require.NoError(t, err)
	require.Len(t, keys, 3)
	for kid, alg := range map[string]string{"1": "ES256", "2": "PS512", "3": "EdDSA"} {
		_, ok := keys.find(kid, alg)
		require.True(t, ok, "%s with %s", kid, alg)
	}
	_, ok := keys.find("1", "ES384")
	require.False(t, ok, "a key is for the algorithm that it names")

	one, err := parse(ec)
	require.NoError(t, err)
	_, ok = one.find("", "ES256")
	require.True(t, ok, "the only key needs no name")

	zeros := encodePart(make([]byte, 32))
	for name, c := range map[string]struct {
		jwk  map[string]any
		want string
	}{
		"curve":      {but(ec, "crv", "P-224"), "key 1: "},
		"coordinate": {but(ec, "x", encodePart(make([]byte, 31))), "key 1: "},
		"point":      {but(ec, "x", zeros, "y", zeros), "not on declared curve"},
		"no base64":  {but(ec, "x", "!"), "illegal base64 data"},
		"short":      {but(rsa, "n", encodePart(append([]byte{0x80}, make([]byte, 127)...))), "has 1024 bits, not 2048 to 8192"},
		"long":       {but(rsa, "n", encodePart(append([]byte{0x80}, make([]byte, 1024)...))), "has 8200 bits, not 2048 to 8192"},
		"encryption": {but(rsa, "use", "enc"), `is not for signatures, but for "enc"`},
		"other kind": {but(ed, "crv", "X25519"), "key 1: "},
		"symmetric":  {map[string]any{"kty": "oct", "kid": "7", "k": "c2VjcmV0"}, "is not a public key"},
		"unfinished": {map[string]any{"kty": "EC", "crv": "P-256"}, "key 1: "},
	} {
		_, err := parse(c.jwk)
		require.ErrorContains(t, err, "has no key that can be used", name)
		require.ErrorContains(t, err, c.want, name)
	}
	_, err = parse()
	require.EqualError(t, err, "has no key that can be used")
	for _, text := range []string{"", "{", "[]", `{"keys":7}`} {
		_, err := parseKeys([]byte(text))
		require.ErrorContains(t, err, "is no JSON Web Key Set", text)
	}
	var syntax *json.SyntaxError
	_, err = parseKeys([]byte("<html>"))
	require.True(t, errors.As(err, &syntax))
}
