package live

import (
	"bufio"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	"github.com/tmaxmax/go-sse"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/httpserver"
)

// quick are options for tests on real connections.
func quick(o *Options) {
	o.Interval = 5 * time.Millisecond
	o.Origins = []string{"https://www.example.com", "http://[::1]:8081"}
}

// serve serves a hub behind the role's middleware, with small buffers, so that a client that does not read is noticed.
func serve(t testing.TB, r *rig, http2 bool) *httptest.Server {
	t.Helper()
	var handler http.Handler = r.Hub
	handler = httpserver.CORS{Origins: r.options.Origins, Methods: []string{"GET"}}.Handler(handler)
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total"}, []string{"code"})
	server := httptest.NewUnstartedServer(promhttp.InstrumentHandlerCounter(counter, handler))
	// For responses that end; far too short for a stream.
	server.Config.ReadTimeout, server.Config.WriteTimeout = time.Second, time.Second
	server.Listener = smallBuffers{server.Listener}
	if http2 {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(func() { r.stop(); server.Close() })
	return server
}

type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(4096)
	}
	return c, err
}

// client reads a stream with a widely used library.
type client struct {
	t      testing.TB
	answer *http.Response
	next   func() (sse.Event, error, bool)
	close  func()
	err    error // why read returned false; nil: end of stream
}

func get(t testing.TB, server *httptest.Server, query string, header ...string) *http.Response {
	t.Helper()
	answer, err := apikit.Do(t, server.Client(), "GET", server.URL+"/v1/stream?"+query, "", header...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func dial(t testing.TB, server *httptest.Server, query string, header ...string) *client {
	t.Helper()
	answer := get(t, server, query, header...)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	c := &client{t: t, answer: answer}
	next, stop := iter.Pull2(iter.Seq2[sse.Event, error](sse.Read(answer.Body, &sse.ReadConfig{MaxEventSize: 1 << 20})))
	c.next = next
	c.close = func() { _ = answer.Body.Close(); stop() }
	t.Cleanup(c.close)
	return c
}

// read returns the next message, or false at the end of the stream, with the reason in c.err.
func (c *client) read() (shown, bool) {
	c.t.Helper()
	e, err, ok := c.next()
	if !ok || err != nil {
		c.err = err
		return shown{}, false
	}
	return shown{e.Type, e.LastEventID, e.Data}, true
}

func (c *client) until(want int64) (messages int, last shown) {
	c.t.Helper()
	for {
		m, ok := c.read()
		require.True(c.t, ok, "the stream ended before %d", want)
		messages++
		if m.likes(c.t).Likes == want {
			return messages, m
		}
	}
}

// requireProblem requires a problem whose detail has these words.
func requireProblem(t *testing.T, answer *http.Response, status int, slug, words string) {
	t.Helper()
	apikit.Read(t, answer).RequireProblem(status, slug, words)
	if status == 429 || status == 503 {
		require.NotEmpty(t, answer.Header.Get("Retry-After"))
	}
}

func TestServerSentEvents(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			r := start(t, 2, func(o *Options) { quick(o); o.WriteTimeout = time.Second })
			r.likes.commit(1, 10, likes(1, 5))
			server := serve(t, r, http2)
			c := dial(t, server, "post_ids=1", "Origin", "https://www.example.com")
			if http2 {
				require.Equal(t, 2, c.answer.ProtoMajor)
			}
			h := c.answer.Header
			require.Equal(t, "text/event-stream", h.Get("Content-Type"))
			require.Equal(t, "no-store", h.Get("Cache-Control"))
			require.Equal(t, "no", h.Get("X-Accel-Buffering"))
			require.Equal(t, "https://www.example.com", h.Get("Access-Control-Allow-Origin"))
			_, m := c.until(5)
			require.Equal(t, "00000001.1:10", m.id)
			require.JSONEq(t, `{"post_id":"1","likes":5,"dislikes":0,"as_of":{"partition":1,"offset":10}}`, m.data)

			// The stream outlives the server's deadlines for other responses, and its own write deadline.
			quiet := time.NewTicker(1500 * time.Millisecond)
			defer quiet.Stop()
			var last shown
			for i := range int64(2) {
				<-quiet.C
				r.likes.commit(1, 11+i, likes(1, 6+i))
				_, last = c.until(6 + i)
			}
			c.close()
			r.requireOpen(0)

			r.likes.commit(1, 13, likes(1, 8))
			again := dial(t, server, "post_ids=1", "Last-Event-ID", last.id)
			n, _ := again.until(8)
			require.Equal(t, 1, n)
			r.stop()
			_, ok := again.read()
			require.False(t, ok)
			require.NoError(t, again.err, "the stream ends cleanly")
			requireProblem(t, get(t, server, "post_ids=1"), 503, slugNotRunning, "")
			server.CloseClientConnections()
			requireNoGoroutines(t)
		})
	}
}

// TestSSEOnTheWire checks the bytes themselves, for what a library hides.
func TestSSEOnTheWire(t *testing.T) {
	r := start(t, 1, func(o *Options) { quick(o); o.Heartbeat = 30 * time.Millisecond })
	lines := bufio.NewScanner(get(t, serve(t, r, false), "post_ids=7").Body)
	line := func() string { require.True(t, lines.Scan(), "%v", lines.Err()); return lines.Text() }
	require.Regexp(t, `^retry: [12]\d{3}$`, line())
	for _, want := range []string{
		"", "id: 00000001.0:0", "event: likes",
		`data: {"post_id":"7","likes":0,"dislikes":0,"as_of":{"partition":0,"offset":0}}`, "",
		":", "", ":", "", // heartbeats
	} {
		require.Equal(t, want, line())
	}
}

// TestNoStream: HEAD gets only the headers; other methods, and connections without deadlines, are rejected.
func TestNoStream(t *testing.T) {
	r := start(t, 1, quick)
	ask := func(method string) *http.Response {
		w := httptest.NewRecorder() // has no deadlines
		r.ServeHTTP(w, httptest.NewRequest(method, "/v1/stream?post_ids=7", nil))
		return w.Result()
	}
	head := ask("HEAD")
	require.Equal(t, 200, head.StatusCode)
	require.Equal(t, "text/event-stream", head.Header.Get("Content-Type"))
	require.Empty(t, apikit.Read(t, head).Body)
	post := ask("POST")
	requireProblem(t, post, 405, "method-not-allowed", "")
	require.Equal(t, "GET, HEAD", post.Header.Get("Allow"))
	requireProblem(t, ask("GET"), 503, slugFailed, "")
	r.requireMetric(1, "_refused_total", "reason", slugFailed)
}

func TestRejections(t *testing.T) {
	r := start(t, 2, func(o *Options) { quick(o); o.Slots = slots(1) })
	server := serve(t, r, false)
	requireProblem(t, get(t, server, "post_ids=x"), 400, slugInvalid, "")
	requireProblem(t, get(t, server, "post_ids=1&last_event_id=x"), 400, slugInvalid, "")
	r.likes.set(func() { r.likes.mu.down[1] = true })
	requireProblem(t, get(t, server, "post_ids=1"), 503, slugNotReady, "17 records behind")
	r.rankings.mu.Lock()
	r.rankings.mu.down = true
	r.rankings.mu.Unlock()
	requireProblem(t, get(t, server, "trending=DE"), 503, slugNotReady, "")

	c := dial(t, server, "post_ids=2")
	requireProblem(t, get(t, server, "post_ids=2"), 429, slugTooMany, "")
	testkit.WaitFor(t, "the stream to be counted", func() bool {
		return apikit.Metric(t, r.metrics, "kudos_reader_streams", "kind", kindSSE) == 1
	})
	c.close()
	r.requireOpen(0)
	dial(t, server, "post_ids=2").until(0)
	for slug, n := range map[string]int{slugInvalid: 2, slugNotReady: 2, slugTooMany: 1} {
		r.requireMetric(n, "_refused_total", "reason", slug)
	}
}

// bulky makes rankings so large that a few of them fill the buffers on the way to the client.
func bulky(r *rig, offset int64) {
	ids := make([]uint64, 500)
	for i := range ids {
		ids[i] = uint64(offset)
	}
	r.rankings.put("DE", "1h", offset, ids...)
}

func stopReading(t *testing.T, server *httptest.Server, request string) net.Conn {
	t.Helper()
	raw, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = raw.Close() })
	require.NoError(t, raw.(*net.TCPConn).SetReadBuffer(4096))
	_, err = raw.Write([]byte(strings.ReplaceAll(request, "\n", "\r\n")))
	require.NoError(t, err)
	return raw
}

// TestSlowSubscriberIsDropped checks that other clients continue. Over HTTP/2 they use the same connection,
// where the stream's window is full and not the connection's buffer.
func TestSlowSubscriberIsDropped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind, request string // "": over HTTP/2
	}{
		"sse":       {kindSSE, "GET /v1/stream?trending=DE HTTP/1.1\nHost: x\n\n"},
		"websocket": {kindWebSocket, "GET /v1/stream?trending=DE HTTP/1.1\nHost: x\n" + handshake + "\n"},
		"http2":     {kindSSE, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, 1, func(o *Options) { quick(o); o.WriteTimeout = time.Second })
			server := serve(t, r, c.request == "")
			if c.request != "" {
				stopReading(t, server, c.request)
			} else {
				require.Equal(t, 2, get(t, server, "trending=DE").ProtoMajor) // its body is not read
			}
			fast, other := dial(t, server, "trending=DE"), dial(t, server, "post_ids=7")
			r.requireOpen(3)

			offset := int64(0)
			require.Eventually(t, func() bool {
				offset++
				bulky(r, offset)
				for { // the others continue
					m, ok := fast.read()
					require.True(t, ok)
					if m.first(t) == uint64(offset) {
						break
					}
				}
				r.likes.commit(0, offset, likes(7, offset))
				other.until(offset)
				return apikit.Metric(t, r.metrics, "kudos_reader_streams_dropped_total", "kind", c.kind) == 1
			}, patience, 2*time.Millisecond, "the client must be dropped")
			r.requireOpen(2)
			r.requireMetric(2, "", "kind", kindSSE)
		})
	}
}
