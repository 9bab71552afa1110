package producer

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// behindGateway believes connections from this machine.
func behindGateway(o *Options) {
	o.Auth, o.AuthTrustedCIDRs = AuthGateway, []string{"127.0.0.0/8", "::1"}
}

// A user whom the gateway names acts as themselves, on every route, and as nobody else.
func TestGateway(t *testing.T) {
	r := start(t, behindGateway)
	jsonOf9 := []string{"X-User-Id", "9", "Content-Type", "application/json"}
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"PUT", "/v1/posts/7/likes/9", "", http.StatusAccepted},
		{"DELETE", "/v1/posts/7/likes/9", "", http.StatusAccepted},
		{"PUT", "/v1/posts/7/dislikes/9", "", http.StatusAccepted},
		{"DELETE", "/v1/posts/7/dislikes/9", "", http.StatusAccepted},
		{"POST", "/v1/posts/7/likes", `{"user_id":"9"}`, http.StatusAccepted},
		{"PUT", "/v1/posts/7/likes/8", "", http.StatusForbidden},
		{"DELETE", "/v1/posts/7/likes/8", "", http.StatusForbidden},
		{"PUT", "/v1/posts/7/dislikes/8", "", http.StatusForbidden},
		{"DELETE", "/v1/posts/7/dislikes/8", "", http.StatusForbidden},
		{"POST", "/v1/posts/7/likes", `{"user_id":8}`, http.StatusForbidden},
	} {
		require.Equal(t, tt.status, r.send(tt.method, tt.path, tt.body, jsonOf9...).status, "%s %s", tt.method, tt.path)
	}
	a := r.send("PUT", "/v1/posts/7/likes/8", "", "X-User-Id", "9")
	a.requireJSON(t, http.StatusForbidden, `{
		"type":"urn:kudos:problem:forbidden","title":"Not in the name of another user","status":403,
		"detail":"user_id is 8, and the request is user 9's, who can act for nobody else; nothing of it was written",
		"errors":[{"field":"user_id","reason":"forbidden","detail":"is 8, and the request is user 9's, who can act for nobody else; nothing of it was written"}]}`)
	r.consume(5)
	require.EqualValues(t, 6, r.metric("kudos_producer_refused_total", "kind", "forbidden"))
	require.EqualValues(t, 6, r.metric("kudos_producer_rejected_total", "reason", "forbidden"))
}

// What is not one user id, in its shortest form, is nobody.
func TestGatewayNamesOneUser(t *testing.T) {
	r := start(t, behindGateway)
	for _, bad := range []string{"", "0", "09", "+9", "-9", "9.0", "me", "9,8", "18446744073709551616"} {
		a := r.send("PUT", "/v1/posts/7/likes/9", "", "X-User-Id", bad)
		a.requireProblem(t, http.StatusUnauthorized, "unauthenticated", "is no user id")
		require.Equal(t, `Gateway realm="kudos"`, a.header.Get("WWW-Authenticate"))
	}
	r.put("/v1/posts/7/likes/9").requireProblem(t, http.StatusUnauthorized, "unauthenticated", "sends 0 headers X-User-Id, not one")
	resp, body := r.raw("PUT /v1/posts/7/likes/9 HTTP/1.1\r\nHost: x\r\nX-User-Id: 9\r\nx-user-id: 8\r\n\r\n")
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	require.Contains(t, body, "sends 2 headers X-User-Id, not one")
	require.EqualValues(t, 11, r.metric("kudos_producer_refused_total", "kind", "unauthenticated"))
	require.Zero(t, r.written())
}

// Whoever is not in the gateway's networks is nobody, whatever they say.
func TestHeaderFromElsewhereIsNotBelieved(t *testing.T) {
	r := start(t, func(o *Options) {
		behindGateway(o)
		o.AuthTrustedCIDRs, o.TrustedProxies = []string{"10.1.0.0/16"}, []string{"127.0.0.1"}
	})
	a := r.send("PUT", "/v1/posts/7/likes/9", "", "X-User-Id", "9", "X-Forwarded-For", "10.1.2.3")
	a.requireProblem(t, http.StatusUnauthorized, "unauthenticated", "does not come from the gateway")

	for address, status := range map[string]int{"10.1.2.3:4": http.StatusAccepted, "[::ffff:10.1.2.3]:4": http.StatusAccepted, "10.2.2.3:4": http.StatusUnauthorized, "@": http.StatusUnauthorized} {
		req := httptest.NewRequest("PUT", "/v1/posts/7/likes/9", nil)
		req.RemoteAddr = address
		req.Header.Set("X-User-Id", "9")
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, req)
		require.Equal(t, status, w.Code, address)
	}
}

// A batch is refused by the line, and as a whole only if all its lines are another's.
func TestBatchInTheNameOfOthers(t *testing.T) {
	r := start(t, behindGateway)
	post := func(lines ...string) answerTo {
		return r.send("POST", "/v1/likes:batch", strings.Join(lines, "\n"), "X-User-Id", "9", "Content-Type", "application/x-ndjson")
	}
	b := decodeBatch(t, post(line(7, 9), line(7, 8), `{}`, line(7, 9)))
	require.Equal(t, [3]int{2, 2, 0}, [3]int{b.Accepted, b.Rejected, b.Failed})
	require.NotNil(t, b.Lines[0].Offset)
	require.Equal(t, answeredLine{Line: 2, Field: "user_id", Reason: "forbidden", Detail: "is 8, and the request is user 9's, who can act for nobody else"}, b.Lines[1])
	require.Equal(t, "zero_id", b.Lines[2].Reason)
	require.NotNil(t, b.Lines[3].Offset)
	require.NotEqual(t, *b.Lines[0].Offset, *b.Lines[3].Offset)

	a := post(line(7, 8), line(7, 7))
	require.Equal(t, http.StatusForbidden, a.status, a.body)
	b = decodeBatch(t, a)
	require.Equal(t, "urn:kudos:problem:forbidden", b.Type)
	require.Equal(t, 2, b.Rejected)
	require.Len(t, b.Lines, 2)
	a = post(line(7, 8), `{}`)
	require.Equal(t, http.StatusBadRequest, a.status, "not only for that: %s", a.body)
	r.consume(2)
}

// The zero caller, which nobody should ever be, acts for nobody.
func TestZeroCallerActsForNobody(t *testing.T) {
	require.False(t, caller{}.actsFor(9))
	require.True(t, caller{user: 9}.actsFor(9))
	require.True(t, caller{anybody: true}.actsFor(9))
}
