package live

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"kudos/dev/testkit"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// handshake has the additional headers of a request for a WebSocket.
const handshake = "Connection: Upgrade\nUpgrade: websocket\n" +
	"Sec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n"

// open opens a WebSocket, or returns the response that rejects it.
func open(t *testing.T, server *httptest.Server, query string, origin string) (*websocket.Conn, *http.Response) {
	t.Helper()
	o := &websocket.DialOptions{HTTPHeader: http.Header{}}
	if origin != "" {
		o.HTTPHeader.Set("Origin", origin)
	}
	ws, answer, err := websocket.Dial(testkit.Context(t), server.URL+"/v1/stream?"+query, o)
	if err != nil {
		require.NotNil(t, answer, "%v", err)
		return nil, answer
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws, answer
}

func readSocket(t *testing.T, ws *websocket.Conn) (shown, error) {
	t.Helper()
	kind, b, err := ws.Read(testkit.Context(t))
	if err != nil {
		return shown{}, err
	}
	require.Equal(t, websocket.MessageText, kind)
	var m struct {
		Event, ID string
		Data      json.RawMessage
	}
	require.NoError(t, json.Unmarshal(b, &m), "%s", b)
	return shown{m.Event, m.ID, string(m.Data)}, nil
}

func readToEnd(t *testing.T, ws *websocket.Conn) (err error) {
	for err == nil {
		_, err = readSocket(t, ws)
	}
	return err
}

func TestWebSocket(t *testing.T) {
	r := start(t, 2, quick)
	r.likes.commit(1, 10, likes(1, 5))
	server := serve(t, r, false)
	ws, _ := open(t, server, "post_ids=1", "")
	m, err := readSocket(t, ws)
	require.NoError(t, err)
	require.Equal(t, shown{"likes", "00000001.1:10",
		`{"post_id":"1","likes":5,"dislikes":0,"as_of":{"partition":1,"offset":10}}`}, m)
	r.requireMetric(1, "", "kind", kindWebSocket)
	r.likes.commit(1, 11, likes(1, 6))
	m, err = readSocket(t, ws)
	require.NoError(t, err)
	require.EqualValues(t, 6, m.likes(t).Likes)
	require.NoError(t, ws.Close(websocket.StatusNormalClosure, ""))
	r.requireOpen(0)

	again, _ := open(t, server, "post_ids=1&last_event_id=00000001.1:12", "")
	r.likes.commit(1, 12, likes(1, 7))
	m, err = readSocket(t, again)
	require.NoError(t, err)
	require.EqualValues(t, 7, m.likes(t).Likes, "nothing from before its position")

	ended := testkit.Later(func() error { return readToEnd(t, again) })
	r.stop()
	require.Equal(t, websocket.StatusGoingAway, websocket.CloseStatus(<-ended))
	_, answer := open(t, server, "post_ids=1", "")
	requireProblem(t, answer, 503, slugNotRunning, "")
	requireNoGoroutines(t)
}

// TestWebSocketOrigins is needed because browsers do not apply CORS to WebSockets.
func TestWebSocketOrigins(t *testing.T) {
	server := serve(t, start(t, 1, quick), false)
	for _, allowed := range []string{"", server.URL, "https://www.example.com", "http://[::1]:8081"} {
		ws, answer := open(t, server, "post_ids=1", allowed)
		require.NotNil(t, ws, "%q: %v", allowed, answer)
		require.NoError(t, ws.CloseNow())
	}
	for _, other := range []string{"https://www.example.org", "http://www.example.com", "https://sub.www.example.com", "null", "http://:1"} {
		ws, answer := open(t, server, "post_ids=1", other)
		require.Nil(t, ws, other)
		requireProblem(t, answer, 403, slugOrigin, "reader.origins")
	}

	all := start(t, 1, func(o *Options) { quick(o); o.Origins = []string{"*"} })
	ws, _ := open(t, serve(t, all, false), "post_ids=1", "https://www.example.org")
	require.NotNil(t, ws)
}

func TestWebSocketHandshakeRefused(t *testing.T) {
	answer := get(t, serve(t, start(t, 1, quick), false), "post_ids=1", "Connection", "Upgrade", "Upgrade",
		"websocket", "Sec-WebSocket-Version", "12")
	requireProblem(t, answer, 400, slugInvalid, "only 13 is supported")
	require.Empty(t, answer.Header.Get("Upgrade"))
}

// TestWebSocketInputIsIgnored also checks that large messages are not accepted.
func TestWebSocketInputIsIgnored(t *testing.T) {
	r := start(t, 1, quick)
	ws, _ := open(t, serve(t, r, false), "post_ids=1", "")
	for range 10 {
		require.NoError(t, ws.Write(t.Context(), websocket.MessageText, make([]byte, maxReadBytes)))
	}
	r.likes.commit(0, 1, likes(1, 1))
	for m := (shown{}); m.id != "00000001.0:1"; {
		var err error
		m, err = readSocket(t, ws)
		require.NoError(t, err)
	}
	require.NoError(t, ws.Write(t.Context(), websocket.MessageText, make([]byte, maxReadBytes+1)))
	_, err := readSocket(t, ws)
	require.Equal(t, websocket.StatusMessageTooBig, websocket.CloseStatus(err))
	r.requireOpen(0)
}

// TestWebSocketPings checks that a client that answers pings stays, and that one that does not is dropped.
func TestWebSocketPings(t *testing.T) {
	r := start(t, 1, func(o *Options) { quick(o); o.Heartbeat, o.WriteTimeout = 50*time.Millisecond, 2*time.Second })
	server := serve(t, r, false)
	pings := make(chan struct{}, 100)
	ctx := testkit.Context(t)
	dial := func(onPing func() (pong bool)) *websocket.Conn {
		ws, _, err := websocket.Dial(ctx, server.URL+"/v1/stream?post_ids=1", &websocket.DialOptions{
			OnPingReceived: func(context.Context, []byte) bool { return onPing() },
		})
		require.NoError(t, err)
		return ws
	}
	ws, silent := dial(func() bool { signal(pings); return true }), dial(func() bool { return false })
	ended := make(chan error, 1)
	go func() { // pings are answered only while somebody reads
		ended <- readToEnd(t, ws)
	}()
	require.Equal(t, websocket.StatusPolicyViolation, websocket.CloseStatus(readToEnd(t, silent)))
	r.requireMetric(1, "_dropped_total", "kind", kindWebSocket)
	for range 5 {
		testkit.Receive(t, pings, "a ping must arrive")
	}
	r.requireOpen(1)
	require.NoError(t, ws.CloseNow())
	<-ended
	r.stop()
	requireNoGoroutines(t)
}

// TestShutdownDoesNotWaitForASilentWebSocket: a client does not answer the close frame, another sent half a message.
func TestShutdownDoesNotWaitForASilentWebSocket(t *testing.T) {
	r := start(t, 1, quick)
	server := serve(t, r, false)
	const request = "GET /v1/stream?post_ids=1 HTTP/1.1\nHost: x\n" + handshake + "\n"
	stopReading(t, server, request)
	talks := stopReading(t, server, request)
	r.requireOpen(2)
	_, err := talks.Write([]byte{0x81, 0xfe, 0x04, 0x00, 1, 2, 3, 4, 'h', 'a', 'l', 'f'}) // of 1,024 bytes
	require.NoError(t, err)
	r.stop() // which fails if streams are left
	requireNoGoroutines(t)
}
