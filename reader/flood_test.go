package reader

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
)

const otherClient = "127.0.0.2" // than that of a test's other requests

// One address gets half of the streams, over SSE and WebSocket together. Others still get theirs.
func TestFloodOfStreams(t *testing.T) {
	r := startRole(t, func(o *Options) { o.MaxStreams = 16 })
	const get = "GET /v1/stream?post_ids=1 HTTP/1.1\r\nHost: x\r\n"
	const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	for i := range 16 {
		conn, want := testkit.DialFrom(t, otherClient, r.Addr(), get+[]string{"", upgrade}[i%2]+"\r\n"), "200"
		if i%2 == 1 {
			want = "101"
		}
		if i >= 8 {
			apikit.ReadFrom(t, conn).RequireProblem(http.StatusTooManyRequests, "too-many-streams",
				"this address holds as many of the open live streams as it leaves free for others").
				RequireHeader("Retry-After", "10")
			continue
		}
		status := make([]byte, len("HTTP/1.1 200"))
		_, err := io.ReadFull(conn, status)
		require.NoError(t, err)
		require.Equal(t, "HTTP/1.1 "+want, string(status))
	}
	for range 4 {
		r.openStream()
	}
	r.get(likesOf1).Require(200)
	require.EqualValues(t, 8, r.Metric("kudos_reader_refused_total", "kind", "address_streams"))
	require.Zero(t, r.Metric("kudos_reader_refused_total", "kind", "streams"))
	require.NoError(t, r.Ready())
}

// A client that does not read its responses holds no slot while they wait for it.
func TestUnreadResponsesHoldNoSlot(t *testing.T) {
	r, handled := newRig(t, func(o *Options) { o.MaxConcurrentRequests = 1 }, nil), atomic.Int64{}
	fast, _ := serveBoth(t, r, &handled)
	unread := testkit.DialFrom(t, otherClient, fast, "")
	require.NoError(t, unread.SetReadBuffer(4<<10))
	padded := fastGet + "Accept: " + strings.Repeat("x", 128-len(fastGet+"Accept: \r\n\r\n")) + "\r\n\r\n"
	many := strings.Repeat(padded, 16) // as much as fastConn reads at once: no part of a request is left for net/http
	var err error
	for range 100_000 { // until the server waits
		require.NoError(t, unread.SetWriteDeadline(time.Now().Add(time.Second)))
		if _, err = io.WriteString(unread, many); err != nil {
			break
		}
	}
	require.ErrorContains(t, err, "timeout", "the server must wait for its client")
	for range 100 {
		apikit.ReadFrom(t, testkit.DialFrom(t, "127.0.0.1", fast, fastGet+"\r\n")).Require(200)
	}
	require.Zero(t, handled.Load())
	require.Zero(t, r.Metric("kudos_reader_refused_total", "kind", "requests"))
}

// A connection that fastConn serves is idle only since its last request.
func TestFastConnectionIsNotIdle(t *testing.T) {
	r, handled := newRig(t, nil, nil), atomic.Int64{}
	fast, _ := serveBoth(t, r, &handled)
	ask := func(conn net.Conn) { apikit.ReadFrom(t, conn).Require(200) }
	busy := testkit.DialFrom(t, "127.0.0.1", fast, fastGet+"\r\n")
	ask(busy)
	silent := testkit.DialFrom(t, "127.0.0.3", fast, fastGet+"\r\n")
	ask(silent)
	time.Sleep(1100 * time.Millisecond) // it is noted once per second
	_, err := io.WriteString(busy, fastGet+"\r\n")
	require.NoError(t, err)
	ask(busy)
	for i := range fastIdle - 1 { // of several clients
		ask(testkit.DialFrom(t, "127.0.1."+string(rune('1'+i)), fast, fastGet+"\r\n"))
	}
	_, err = silent.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the connection that waits longest must be closed")
	_, err = io.WriteString(busy, fastGet+"\r\n")
	require.NoError(t, err)
	ask(busy)
}

// Headers are bounded; the longest query fits.
func TestHeadersAreBounded(t *testing.T) {
	r := startRole(t, nil)
	get := func(size int) apikit.Answer {
		request := fastGet + "X: " + strings.Repeat("x", size) + "\r\n\r\n"
		return apikit.ReadFrom(t, testkit.DialFrom(t, otherClient, r.Addr(), request))
	}
	get(maxHeaderBytes - 100).Require(200)
	get(maxHeaderBytes + 8<<10).Require(http.StatusRequestHeaderFieldsTooLarge)
}
