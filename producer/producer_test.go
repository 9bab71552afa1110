package producer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// dial opens a connection of its own, for what Go's client would not send.
func (r *rig) dial() net.Conn {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.Addr())
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(r.t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

func (r *rig) raw(request string) (*http.Response, string) {
	r.t.Helper()
	conn := r.dial()
	_, err := io.WriteString(conn, request)
	require.NoError(r.t, err)
	return readResponse(r.t, conn)
}

func readResponse(t *testing.T, conn net.Conn) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

// Shutdown takes nothing new, and answers what is in hand: all that was accepted is
// in Kafka, and only that was accepted.
func TestShutdownLosesNothingAccepted(t *testing.T) {
	r := start(t, nil)
	held, release := r.hold()
	const singles = 20
	answers := make(chan answerTo, singles+1)
	send := func(method, path, body string) {
		a, err := r.trySend(method, path, strings.NewReader(body), "Content-Type", "application/x-ndjson")
		if err != nil {
			a.body = err.Error()
		}
		answers <- a
	}
	for i := range singles {
		go send("PUT", fmt.Sprintf("/v1/posts/%d/likes/9", i+1), "")
	}
	go send("POST", "/v1/likes:batch", line(50, 1)+"\n"+line(51, 2))
	wait(t, held, "an event must reach the broker")
	require.Eventually(t, func() bool { return r.metric("kudos_producer_buffered_records") == singles+2 }, patience, time.Millisecond)

	r.stop()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", r.Addr())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, patience, time.Millisecond, "nothing new is taken")
	require.ErrorContains(t, r.Ready(), "shutting down")
	require.Empty(t, r.ended, "Run waits for the requests in hand")

	release()
	for range singles + 1 {
		a := <-answers
		require.Equal(t, http.StatusAccepted, a.status, a.body)
	}
	require.NoError(t, <-r.ended)
	r.consume(singles + 2)
}

// What the client still holds at shutdown is delivered, though its request was
// answered long ago.
func TestShutdownDeliversWhatIsBuffered(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	away := r.away()
	away.Store(true)
	r.putAndLeave("/v1/posts/7/likes/9", func() {
		require.Eventually(t, func() bool { return r.metric("kudos_producer_buffered_records") == 1 }, patience, time.Millisecond)
	})
	r.stop()
	require.Eventually(t, func() bool { return r.stopping.Load() }, patience, time.Millisecond)
	away.Store(false)
	require.NoError(t, <-r.ended)
	r.consume(1)
}

func TestRunLeavesNothingRunning(t *testing.T) {
	r := start(t, nil)
	r.put("/v1/posts/7/likes/9").place(t)
	stacks := func() string {
		buf := make([]byte, 1<<20)
		return string(buf[:runtime.Stack(buf, true)])
	}
	require.Contains(t, stacks(), "franz-go/pkg/kgo.")
	r.stop()
	require.NoError(t, <-r.ended)
	require.Eventually(t, func() bool {
		return !strings.Contains(stacks(), "franz-go/pkg/kgo.") && !strings.Contains(stacks(), "kudos/producer.(*publisher)")
	}, patience, time.Millisecond)
}

// Kafka is away and stays away: shutdown ends within its bound, and no request is
// answered as accepted.
func TestShutdownWithoutKafka(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.AckTimeout, o.ShutdownTimeout = 300*time.Millisecond, 2*time.Second })
	held, release := r.hold()
	answers := make(chan answerTo, 1)
	go func() { a, _ := r.trySend("PUT", "/v1/posts/7/likes/9?time_ms=5", nil); answers <- a }()
	wait(t, held, "the event must reach the broker")
	began := time.Now()
	r.stop()
	(<-answers).requireJSON(t, http.StatusServiceUnavailable, notAcknowledged(5, "Kafka has not answered within 300ms"))
	require.NoError(t, <-r.ended)
	require.Less(t, time.Since(began), 5*time.Second)
	release()
}

// A request that is still on its way in when time is up is cut off, and wrote nothing.
func TestShutdownCutsASlowRequest(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) {
		o.AckTimeout, o.ShutdownTimeout, o.MaxConcurrentRequests = 2*time.Second, 3*time.Second, 1
	})
	conn := r.dial()
	_, err := io.WriteString(conn, "POST /v1/likes:batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/jsonl\r\nContent-Length: 1000\r\n\r\n"+line(1, 1)+"\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return r.batchBodies.Arriving() == 1 },
		patience, time.Millisecond, "the batch must be on its way in")
	r.stop()
	err = <-r.ended
	require.ErrorContains(t, err, "producer: requests were cut off after 3s")
	require.NotContains(t, err.Error(), "did not end")
	require.Zero(t, r.written())
}

func TestHandlerWithoutRun(t *testing.T) {
	r := newRig(t, nil)
	require.Empty(t, r.Addr())
	require.ErrorContains(t, r.Ready(), "the producer is not running")
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("PUT", "/v1/posts/7/likes/9", nil))
	answerTo{w.Code, w.Header(), w.Body.String()}.requireJSON(t, http.StatusServiceUnavailable, `{
		"type":"urn:kudos:problem:not-running","title":"Likes are not taken now","status":503,
		"detail":"the producer starts or shuts down; nothing of this request was written"}`)
}

// Another server may mount the handler, and has its own routes before it.
func TestHandlerMountedElsewhere(t *testing.T) {
	r := start(t, nil)
	mux := http.NewServeMux()
	mux.Handle("/", r.Handler())
	mux.HandleFunc("GET /v1/posts/{post_id}/count", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	for path, want := range map[string]int{"PUT /v1/posts/7/likes/9": 202, "POST /v1/likes:batch": 415, "GET /v1/posts/7/count": 418} {
		method, path, _ := strings.Cut(path, " ")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		require.Equal(t, want, w.Code, path)
	}
}

func TestMetrics(t *testing.T) {
	r := start(t, nil)
	require.Zero(t, r.metric("kudos_producer_rejected_total", "reason", string(schema.OverSize)), "known reasons start at zero")
	for _, kind := range []string{"unauthenticated", "forbidden", "address_rate", "user_rate"} {
		require.Zero(t, r.metric("kudos_producer_refused_total", "kind", kind), "known kinds start at zero")
	}
	r.put("/v1/posts/7/likes/9").place(t)
	r.put("/v1/posts/0/likes/9")
	r.postLines("", line(1, 1), "{}")
	const route = "/v1/posts/{post_id}/likes/{user_id}"
	require.EqualValues(t, 1, r.metric("kudos_producer_requests_total", "route", route, "method", "put", "code", "202"))
	require.EqualValues(t, 1, r.metric("kudos_producer_requests_total", "route", route, "method", "put", "code", "400"))
	require.EqualValues(t, 2, r.metric("kudos_producer_rejected_total", "reason", string(schema.ZeroID)))
	require.EqualValues(t, 2, r.metric("kudos_producer_publish_seconds"))
	require.EqualValues(t, 2, r.metric("kudos_producer_accepted_total"))
	require.Zero(t, r.metric("kudos_producer_unacknowledged_total"))
	// The client calls back before it lets go of a record.
	require.Eventually(t, func() bool { return r.metric("kudos_producer_buffered_records") == 0 }, patience, time.Millisecond)
}

func TestNewRefuses(t *testing.T) {
	cluster := startCluster(t)
	log, reg := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	_, err := New(Options{}, kafkaOptions(cluster), log, reg)
	require.ErrorContains(t, err, "producer options: producer.http_addr")
	kafka := kafkaOptions(cluster)
	kafka.Brokers = nil
	_, err = New(DefaultOptions(), kafka, log, reg)
	require.ErrorContains(t, err, "kafka.brokers")

	_, err = New(DefaultOptions(), kafkaOptions(cluster), log, reg)
	require.NoError(t, err)
	_, err = New(DefaultOptions(), kafkaOptions(cluster), log, reg)
	require.ErrorContains(t, err, "registering the producer's metrics")
}

func TestRunRefuses(t *testing.T) {
	r := start(t, nil)
	require.ErrorContains(t, r.Run(context.Background()), "Run was called twice")
	taken := newRig(t, func(o *Options) { o.HTTPAddr = r.Addr() })
	require.ErrorContains(t, taken.Run(context.Background()), "producer: listening on "+r.Addr()+" (set producer.http_addr to a free host:port): ")
}
