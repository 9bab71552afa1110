package producer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit/apikit"
)

func behindGateway(o *Options) {
	o.Auth, o.AuthTrustedCIDRs = AuthGateway, []string{"127.0.0.0/8", "::1"}
}

// A user named by the gateway acts as themselves on every route, and as nobody else.
func TestGateway(t *testing.T) {
	r := start(t, behindGateway)
	ask := func(method, path, body string) apikit.Answer {
		return r.Send(method, path, body, "X-User-Id", "9", "Content-Type", "application/json")
	}
	for user, status := range map[int]int{9: accepted, 8: http.StatusForbidden} {
		for _, kind := range []string{"likes", "dislikes"} {
			path := fmt.Sprintf("/v1/posts/7/%s/%d", kind, user)
			ask("PUT", path, "").Require(status)
			ask("DELETE", path, "").Require(status)
		}
		ask("POST", likes, fmt.Sprintf(`{"user_id":"%d"}`, user)).Require(status)
	}
	const detail = "is 8, but the caller is user 9, who can act only for themselves; nothing was written"
	ask("PUT", "/v1/posts/7/likes/8", "").RequireJSON(http.StatusForbidden, apikit.Problem(403, "forbidden",
		"Not allowed to act for another user", "user_id "+detail,
		apikit.Errors(apikit.FieldError("user_id", "forbidden", detail))))
	r.consume(5)
	r.requireCount(6, "refused_total", "kind", "forbidden")
	r.requireCount(6, "rejected_total", "reason", "forbidden")
}

func TestGatewayNamesOneUser(t *testing.T) {
	r := start(t, behindGateway)
	for _, bad := range []string{"", "0", "09", "+9", "-9", "9.0", "me", "9,8", "18446744073709551616"} {
		a := requireUnauthenticated(r.put(like, "X-User-Id", bad), "is not a user id")
		require.Equal(t, `Gateway realm="kudos"`, a.Header.Get("WWW-Authenticate"))
	}
	requireUnauthenticated(r.put(like), "sent 0 X-User-Id headers instead of one")
	twice := r.Dial("PUT " + like + " HTTP/1.1\r\nHost: x\r\nX-User-Id: 9\r\nx-user-id: 8\r\n\r\n")
	requireUnauthenticated(apikit.ReadFrom(t, twice), "sent 2 X-User-Id headers instead of one")
	r.requireCount(11, "refused_total", "kind", "unauthenticated")
	require.Zero(t, r.written())
}

func TestGatewayHeaderFromElsewhereIsIgnored(t *testing.T) {
	r := start(t, func(o *Options) {
		behindGateway(o)
		o.AuthTrustedCIDRs, o.TrustedProxies = []string{"10.1.0.0/16"}, []string{"127.0.0.1"}
	})
	a := r.put(like, "X-User-Id", "9", "X-Forwarded-For", "10.1.2.3")
	requireUnauthenticated(a, "does not come from the gateway")
	for address, status := range map[string]int{
		"10.1.2.3:4": accepted, "[::ffff:10.1.2.3]:4": accepted,
		"10.2.2.3:4": http.StatusUnauthorized, "@": http.StatusUnauthorized,
	} {
		req := httptest.NewRequest("PUT", like, nil)
		req.RemoteAddr = address
		req.Header.Set("X-User-Id", "9")
		apikit.Ask(t, r.HTTP.Handler, req).Require(status)
	}
}

// Lines for other users are rejected one by one. The batch is rejected only if all its lines are.
func TestBatchOnBehalfOfOtherUsers(t *testing.T) {
	r := start(t, behindGateway)
	post := func(lines ...string) apikit.Answer { return r.postLinesAs([]string{"X-User-Id", "9"}, "", lines...) }
	b := decodeBatch(post(line(7, 9), line(7, 8), `{}`, line(7, 9)), 2, 2, 0)
	require.NotNil(t, b.Lines[0].Offset)
	require.Equal(t, answeredLine{Line: 2, Field: "user_id", Reason: "forbidden",
		Detail: "is 8, but the caller is user 9, who can act only for themselves"}, b.Lines[1])
	require.Equal(t, "zero_id", b.Lines[2].Reason)
	require.NotNil(t, b.Lines[3].Offset)
	require.NotEqual(t, *b.Lines[0].Offset, *b.Lines[3].Offset)

	b = decodeBatch(post(line(7, 8), line(7, 7)).RequireProblem(http.StatusForbidden, "forbidden", ""), 0, 2, 0)
	require.Len(t, b.Lines, 2)
	post(line(7, 8), `{}`).Require(http.StatusBadRequest) // not only for that
	r.consume(2)
}

func TestZeroCallerActsForNobody(t *testing.T) {
	require.False(t, caller{}.actsFor(9))
	require.True(t, caller{user: 9}.actsFor(9))
	require.True(t, caller{anybody: true}.actsFor(9))
}

func TestUserRate(t *testing.T) {
	r, clock := startWithClock(t, func(o *Options) { o.UserRate, o.UserBurst = 0.5, 2 })
	r.put(like).Require(accepted)
	r.Send("DELETE", like, "").Require(accepted)
	const detail = "is 9, who is above the rate limit of 0.5 per second; nothing was written"
	r.put("/v1/posts/8/likes/9").RequireJSON(429, apikit.Problem(429, "rate-limited", "Rate limit exceeded",
		"user_id "+detail, apikit.Errors(apikit.FieldError("user_id", "rate_limited", detail)))).
		RequireHeader("Retry-After", "2")
	r.put("/v1/posts/8/likes/10").Require(accepted)

	clock.advance(1500 * time.Millisecond)
	requireRefused(r.postLike("/v1/posts/8/likes", `{"user_id":9}`), 429, "rate-limited", "user_id is 9").
		RequireHeader("Retry-After", "1")
	clock.advance(500 * time.Millisecond)
	r.put("/v1/posts/8/likes/9").Require(accepted)
	r.put("/v1/posts/8/likes/9").Require(429)
	r.consume(4)
	r.requireCount(3, "refused_total", "kind", "user_rate")
	r.requireCount(3, "rejected_total", "reason", "rate_limited")
}

// Each line of a batch counts for its user, and is rejected on its own.
func TestUserRateInABatch(t *testing.T) {
	r, _ := startWithClock(t, func(o *Options) { o.UserRate, o.UserBurst = 1, 2 })
	b := decodeBatch(r.postLines("", line(1, 9), line(2, 9), line(3, 9), line(3, 10), line(4, 9)), 3, 2, 0)
	for i, refused := range []bool{false, false, true, false, true} {
		require.Equal(t, refused, b.Lines[i].Reason == "rate_limited", "line %d", i+1)
	}
	a := r.postLines("", line(5, 9), line(6, 9)).RequireProblem(429, "rate-limited", "")
	require.Len(t, decodeBatch(a.RequireHeader("Retry-After", "1"), 0, 2, 0).Lines, 2)
	r.consume(3)
}

// Forbidden events do not count for the named user. A service has no user rate.
func TestUserRateAppliesToCallers(t *testing.T) {
	key := newECSigner(t, "1")
	r := start(t, func(o *Options) { newIssuer(t, key).options(o); o.UserRate, o.UserBurst = 0.001, 1 })
	user, service := key.token(t, nil), key.serviceToken(t)
	for range 3 {
		r.putAs(user, "/v1/posts/7/likes/8").Require(http.StatusForbidden)
		r.putAs(service, like).Require(accepted)
	}
	decodeBatch(r.postLinesAs(bearer(service), "", line(1, 9), line(2, 9), line(3, 9)), 3, 0, 0)
	r.putAs(user, like).Require(accepted)
	r.putAs(user, like).Require(429)
}

// The address rate counts every request, before authentication.
func TestAddressRate(t *testing.T) {
	r, clock := startWithClock(t, func(o *Options) {
		behindGateway(o)
		o.AddressRate, o.AddressBurst = 1, 3
		o.TrustedProxies = []string{"127.0.0.0/8"}
	})
	from := func(address string, headers ...string) apikit.Answer {
		return r.put(like, append(headers, "X-Forwarded-For", address)...)
	}
	from("192.0.2.1").Require(http.StatusUnauthorized)
	from("192.0.2.1", "X-User-Id", "8").Require(http.StatusForbidden)
	from("192.0.2.1", "X-User-Id", "9").Require(accepted)
	requireRefused(from("192.0.2.1", "X-User-Id", "9"), 429, "rate-limited",
		"requests from this address exceed the rate limit of 1 per second").RequireHeader("Retry-After", "1")
	from("10.1.2.3, 192.0.2.1", "X-User-Id", "9").Require(429) // what the client wrote itself does not count
	from("192.0.2.2", "X-User-Id", "9").Require(accepted)
	clock.advance(time.Second)
	from("192.0.2.1", "X-User-Id", "9").Require(accepted)
	r.requireCount(2, "refused_total", "kind", "address_rate")
	r.consume(3)
}

func TestLimiterDropsIdleBuckets(t *testing.T) {
	l := newLimiter[int](0.001, 1, 3)
	l.now = func() time.Time { return time.Unix(1, 0) }
	for key := range 1000 {
		require.Zero(t, l.take(key))
	}
	require.Equal(t, 3, l.mu.buckets.Len())
	for key := 997; key < 1000; key++ {
		require.Equal(t, 1000*time.Second, l.take(key).Round(time.Millisecond))
	}
	require.Zero(t, l.take(996))
}
