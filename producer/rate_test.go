package producer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A user who is faster than the rate waits, as told; others do not.
func TestUserRate(t *testing.T) {
	clock := newClock()
	r := newRig(t, func(o *Options) { o.UserRate, o.UserBurst = 0.5, 2 })
	r.access.perUser.now = clock.now
	r.runUntilReady()
	r.put("/v1/posts/7/likes/9").place(t)
	r.send("DELETE", "/v1/posts/7/likes/9", "").place(t)
	a := r.put("/v1/posts/8/likes/9")
	a.requireJSON(t, http.StatusTooManyRequests, `{
		"type":"urn:kudos:problem:rate-limited","title":"Too fast","status":429,
		"detail":"user_id is 9, whose likes come faster than 0.5 a second; nothing of it was written",
		"errors":[{"field":"user_id","reason":"rate_limited","detail":"is 9, whose likes come faster than 0.5 a second; nothing of it was written"}]}`)
	require.Equal(t, "2", a.header.Get("Retry-After"))
	r.put("/v1/posts/8/likes/10").place(t)

	clock.advance(1500 * time.Millisecond)
	a = r.postLikeBody("/v1/posts/8/likes", `{"user_id":9}`)
	a.requireProblem(t, http.StatusTooManyRequests, "rate-limited", "user_id is 9")
	require.Equal(t, "1", a.header.Get("Retry-After"))
	clock.advance(500 * time.Millisecond)
	r.put("/v1/posts/8/likes/9").place(t)
	require.Equal(t, http.StatusTooManyRequests, r.put("/v1/posts/8/likes/9").status)
	r.consume(4)
	require.EqualValues(t, 3, r.metric("kudos_producer_refused_total", "kind", "user_rate"))
	require.EqualValues(t, 3, r.metric("kudos_producer_rejected_total", "reason", "rate_limited"))
}

// The lines of a batch count one by one, each for its user, and are refused one by one.
func TestUserRateInABatch(t *testing.T) {
	clock := newClock()
	r := newRig(t, func(o *Options) { o.UserRate, o.UserBurst = 1, 2 })
	r.access.perUser.now = clock.now
	r.runUntilReady()
	b := decodeBatch(t, r.postLines("", line(1, 9), line(2, 9), line(3, 9), line(3, 10), line(4, 9)))
	require.Equal(t, [3]int{3, 2, 0}, [3]int{b.Accepted, b.Rejected, b.Failed})
	for i, refused := range []bool{false, false, true, false, true} {
		require.Equal(t, refused, b.Lines[i].Reason == "rate_limited", "line %d", i+1)
	}
	a := r.postLines("", line(5, 9), line(6, 9))
	require.Equal(t, http.StatusTooManyRequests, a.status, a.body)
	require.Equal(t, "1", a.header.Get("Retry-After"))
	b = decodeBatch(t, a)
	require.Equal(t, "urn:kudos:problem:rate-limited", b.Type)
	require.Len(t, b.Lines, 2)
	r.consume(3)
}

// What is not the caller's to send costs the user named nothing; a service has no user's
// rate.
func TestWhomTheUserRateHolds(t *testing.T) {
	key := newECSigner(t, "1")
	r := start(t, func(o *Options) { newIssuer(t, key).options(o); o.UserRate, o.UserBurst = 0.001, 1 })
	user, service := key.token(t, nil), key.serviceToken(t)
	for range 3 {
		require.Equal(t, http.StatusForbidden, r.putAs(user, "/v1/posts/7/likes/8").status)
		r.putAs(service, "/v1/posts/7/likes/9").place(t)
	}
	lines := strings.Join([]string{line(1, 9), line(2, 9), line(3, 9)}, "\n")
	a := r.send("POST", "/v1/likes:batch", lines, "Content-Type", "application/x-ndjson", "Authorization", "Bearer "+service)
	require.Equal(t, 3, decodeBatch(t, a).Accepted)
	r.putAs(user, "/v1/posts/7/likes/9").place(t)
	require.Equal(t, http.StatusTooManyRequests, r.putAs(user, "/v1/posts/7/likes/9").status)
}

// An address's rate counts every request, before it is known who asks and what.
func TestAddressRate(t *testing.T) {
	clock := newClock()
	r := newRig(t, func(o *Options) {
		behindGateway(o)
		o.AddressRate, o.AddressBurst = 1, 3
		o.TrustedProxies = []string{"127.0.0.0/8"}
	})
	r.access.perAddress.now = clock.now
	r.runUntilReady()
	from := func(address string, headers ...string) answerTo {
		return r.send("PUT", "/v1/posts/7/likes/9", "", append(headers, "X-Forwarded-For", address)...)
	}
	require.Equal(t, http.StatusUnauthorized, from("192.0.2.1").status)
	require.Equal(t, http.StatusForbidden, from("192.0.2.1", "X-User-Id", "8").status)
	from("192.0.2.1", "X-User-Id", "9").place(t)
	a := from("192.0.2.1", "X-User-Id", "9")
	a.requireProblem(t, http.StatusTooManyRequests, "rate-limited", "requests come from this address faster than 1 a second")
	require.Equal(t, "1", a.header.Get("Retry-After"))
	require.Equal(t, http.StatusTooManyRequests, from("10.1.2.3, 192.0.2.1", "X-User-Id", "9").status, "what the client writes before is nothing")
	from("192.0.2.2", "X-User-Id", "9").place(t)
	clock.advance(time.Second)
	from("192.0.2.1", "X-User-Id", "9").place(t)
	require.EqualValues(t, 2, r.metric("kudos_producer_refused_total", "kind", "address_rate"))
	r.consume(3)
}

// A limiter's memory is bounded: whoever was not seen for longest is forgotten.
func TestLimiterForgets(t *testing.T) {
	clock := newClock()
	l := newLimiter[int](0.001, 1, 3)
	l.now = clock.now
	for key := range 1000 {
		require.Zero(t, l.take(key))
	}
	require.Equal(t, 3, l.mu.buckets.Len())
	for key := 997; key < 1000; key++ {
		require.Equal(t, 1000*time.Second, l.take(key).Round(time.Millisecond))
	}
	require.Zero(t, l.take(996))
}

func TestNoRateIsNoLimit(t *testing.T) {
	l := newLimiter[int](0, 0, maxBuckets)
	require.Nil(t, l)
	for range 1000 {
		require.Zero(t, l.take(1))
	}
}

// Where a request comes from is what the last proxy of ours says, and nobody before it.
func TestClientOf(t *testing.T) {
	proxies, err := parseNetworks([]string{"10.0.0.0/8", "2001:db8:1::/48", "127.0.0.1"})
	require.NoError(t, err)
	for _, tt := range []struct {
		remote    string
		forwarded []string
		want      string
	}{
		{"192.0.2.1:5", nil, "192.0.2.1"},
		{"192.0.2.1:5", []string{"198.51.100.1"}, "192.0.2.1"}, // no proxy of ours
		{"10.0.0.1:5", nil, "10.0.0.1"},
		{"10.0.0.1:5", []string{"192.0.2.1"}, "192.0.2.1"},
		{"10.0.0.1:5", []string{"198.51.100.1, 192.0.2.1"}, "192.0.2.1"},
		{"10.0.0.1:5", []string{"198.51.100.1", "192.0.2.1,10.0.0.2 ,  127.0.0.1"}, "192.0.2.1"},
		{"10.0.0.1:5", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		{"10.0.0.1:5", []string{"192.0.2.1, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1:5", []string{""}, "10.0.0.1"},
		{"10.0.0.1:5", []string{"192.0.2.1:4711"}, "192.0.2.1"},
		{"[2001:db8:1::1]:5", []string{"[2001:db8:2::1]:80"}, "2001:db8:2::1"},
		{"[2001:db8:1::1]:5", []string{"[2001:db8:2::1]"}, "2001:db8:2::1"},
		{"[2001:db8:1::1]:5", []string{"2001:db8:2::1"}, "2001:db8:2::1"},
		{"[::ffff:10.0.0.1]:5", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"[fe80::1%eth0]:5", nil, "fe80::1"},
		{"@", []string{"192.0.2.1"}, "invalid IP"},
	} {
		r := httptest.NewRequest("PUT", "/", nil)
		r.RemoteAddr = tt.remote
		for _, f := range tt.forwarded {
			r.Header.Add("X-Forwarded-For", f)
		}
		require.Equal(t, tt.want, proxies.clientOf(r).String(), "%s, forwarded for %q", tt.remote, tt.forwarded)
	}
}

// Whoever has an IPv6 network cannot take a new address for each request.
func TestSubscriberOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "2001:db8:1:2::": "2001:db8:1:2::",
	} {
		require.Equal(t, want, subscriberOf(parseAddr(address)).String())
	}
	require.False(t, subscriberOf(parseAddr("@")).IsValid())
}

func TestParseNetworks(t *testing.T) {
	n, err := parseNetworks([]string{"10.1.2.3/16", "192.0.2.1", "2001:db8::/32", "::1"})
	require.NoError(t, err)
	for address, want := range map[string]bool{
		"10.1.0.1": true, "10.2.0.1": false, "192.0.2.1": true, "192.0.2.2": false, "2001:db8::1": true, "::1": true, "::2": false, "": false,
	} {
		require.Equal(t, want, n.contain(parseAddr(address)), address)
	}
	for _, bad := range []string{"", "10.0.0.0/33", "10.0.0", "example.com", "fe80::1%eth0", "10.0.0.1:80"} {
		_, err := parseNetworks([]string{"10.0.0.0/8", bad})
		require.ErrorContains(t, err, fmt.Sprintf("%q is no network", bad))
	}
}
