package producer

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// The buffer is full: the next request is refused at once, whole, and nothing of it
// is written; what was taken before is not harmed.
func TestBufferFull(t *testing.T) {
	r := start(t, func(o *Options) { o.MaxBatchLines, o.MaxBufferedRecords = 3, 3 })
	held, release := r.hold()
	inHand := make(chan answerTo, 1)
	go func() {
		a, _ := r.trySend("POST", "/v1/likes:batch", strings.NewReader(line(1, 1)+"\n"+line(1, 2)), "Content-Type", "application/x-ndjson")
		inHand <- a
	}()
	wait(t, held, "the first batch must reach the broker")
	require.Eventually(t, func() bool { return r.metric("kudos_producer_buffered_records") == 2 }, patience, time.Millisecond)

	full := `{"type":"urn:kudos:problem:buffer-full","title":"The buffer for Kafka is full","status":429,
		"detail":"events come faster than Kafka takes them; nothing of this request was written"}`
	a := r.postLines("", line(1, 3), "x", line(2, 4)) // one place is left: not for half of it
	a.requireJSON(t, http.StatusTooManyRequests, full)
	require.Equal(t, "1", a.header.Get("Retry-After"))

	inHandToo := make(chan answerTo, 1)
	go func() { a, _ := r.trySend("PUT", "/v1/posts/1/likes/5", nil); inHandToo <- a }()
	require.Eventually(t, func() bool { return r.metric("kudos_producer_buffered_records") == 3 }, patience, time.Millisecond)
	r.put("/v1/posts/1/likes/6").requireJSON(t, http.StatusTooManyRequests, full)

	release()
	require.Equal(t, http.StatusAccepted, (<-inHand).status)
	require.Equal(t, http.StatusAccepted, (<-inHandToo).status)
	r.put("/v1/posts/1/likes/7").place(t)
	users := []uint64{}
	for _, rec := range r.consume(4) {
		var e schema.Event
		require.NoError(t, schema.DecodeEvent(rec.Key, rec.Value, &e))
		users = append(users, e.UserID)
	}
	require.Equal(t, []uint64{1, 2, 5, 7}, users)
	require.EqualValues(t, 1, r.metric("kudos_producer_requests_total", "route", "/v1/likes:batch", "method", "post", "code", "429"))
}

// While Kafka is away a full buffer is not the client's doing: 503.
func TestBufferFullWhileKafkaIsAway(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) {
		o.MaxBatchLines, o.MaxBufferedRecords = 1, 1
		o.ReadyTimeout, o.AckTimeout = 300*time.Millisecond, 2*time.Second
	})
	r.away().Store(true)
	inHand := make(chan struct{})
	go func() { defer close(inHand); _, _ = r.trySend("PUT", "/v1/posts/1/likes/5", nil) }()
	require.Eventually(t, func() bool { return r.Ready() != nil && r.metric("kudos_producer_buffered_records") == 1 }, patience, time.Millisecond)
	a := r.put("/v1/posts/1/likes/6")
	a.requireJSON(t, http.StatusServiceUnavailable, `{"type":"urn:kudos:problem:buffer-full","title":"The buffer for Kafka is full","status":503,
		"detail":"Kafka does not answer; nothing of this request was written"}`)
	require.Equal(t, "1", a.header.Get("Retry-After"))
	wait(t, inHand, "the request in hand must be answered")
}

func TestTooManyRequests(t *testing.T) {
	r := start(t, func(o *Options) { o.MaxConcurrentRequests, o.MaxConcurrentBatches, o.RetryAfter = 3, 1, 7*time.Second })
	tooMany := func(what string) string {
		return `{"type":"urn:kudos:problem:too-many-requests","title":"Too many requests at a time","status":429,"detail":"` + what + `; nothing of this one was written"}`
	}
	held, release := r.hold()
	answers := make(chan answerTo, 3)
	send := func(method, path, body, contentType string) {
		a, _ := r.trySend(method, path, strings.NewReader(body), "Content-Type", contentType)
		answers <- a
	}
	go send("POST", "/v1/likes:batch", line(1, 1), "application/x-ndjson")
	wait(t, held, "the batch must reach the broker")
	a := r.postLines("", line(1, 2))
	a.requireJSON(t, http.StatusTooManyRequests, tooMany("as many batches are in hand as the producer takes"))
	require.Equal(t, "7", a.header.Get("Retry-After"))

	go send("PUT", "/v1/posts/1/likes/3", "", "")
	go send("PUT", "/v1/posts/1/likes/4", "", "")
	require.Eventually(t, func() bool { return r.metric("kudos_producer_buffered_records") == 3 }, patience, time.Millisecond)
	a = r.put("/v1/posts/1/likes/5")
	a.requireJSON(t, http.StatusTooManyRequests, tooMany("as many requests are in hand as the producer takes"))
	require.Equal(t, "7", a.header.Get("Retry-After"))

	release()
	for range 3 {
		require.Equal(t, http.StatusAccepted, (<-answers).status)
	}
	r.put("/v1/posts/1/likes/5").place(t)
	require.Equal(t, http.StatusAccepted, r.postLines("", line(1, 6)).status)
	require.EqualValues(t, 5, r.written())
}

// The client must have room for all that p.room lets through: it would refuse single
// lines of a batch.
func TestClientHasRoomForTheWholeBuffer(t *testing.T) {
	r := start(t, nil)
	client := r.publisher.client.Load()
	require.Greater(t, client.OptValue(kgo.MaxBufferedRecords), int64(r.options.MaxBufferedRecords))
}

// longAck is longer than the test has patience: what ends a wait is something else.
func longAck(o *Options) {
	o.AckTimeout, o.ShutdownTimeout, o.WriteTimeout = 2*patience, 3*patience, 4*patience
}

// putAndLeave sends a like whose client goes away before it is answered.
func (r *rig) putAndLeave(path string, inHand func()) {
	r.t.Helper()
	conn := r.dial()
	_, err := io.WriteString(conn, "PUT "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(r.t, err)
	inHand()
	require.NoError(r.t, conn.Close())
}

// A client that goes away gives its place back at once; its event is still written.
func TestClientGoesAway(t *testing.T) {
	r := start(t, func(o *Options) { longAck(o); o.MaxConcurrentRequests = 1 })
	held, release := r.hold()
	r.putAndLeave("/v1/posts/7/likes/9", func() {
		wait(t, held, "the event must reach the broker")
		require.Equal(t, http.StatusTooManyRequests, r.put("/v1/posts/7/likes/8").status)
	})
	require.Eventually(t, func() bool { return r.put("/nothing").status == http.StatusNotFound }, patience, time.Millisecond)
	release()
	r.consume(1)
}

// A client that goes away takes no other's event with it, though they wait for the
// same partition.
func TestOthersOutliveAClientThatGoesAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, longAck)
	away := r.away()
	away.Store(true)
	r.run()
	buffered := func(n float64) func() bool {
		return func() bool { return r.metric("kudos_producer_buffered_records") == n }
	}
	other := make(chan answerTo, 1)
	r.putAndLeave("/v1/posts/7/likes/1", func() {
		require.Eventually(t, buffered(1), patience, time.Millisecond)
		go func() { a, _ := r.trySend("PUT", "/v1/posts/7/likes/2", nil); other <- a }()
		require.Eventually(t, buffered(2), patience, time.Millisecond)
	})
	// Its request has ended: only the other's place is taken.
	require.Eventually(t, func() bool {
		all := int64(r.options.MaxConcurrentRequests) - 1
		ended := r.requests.TryAcquire(all)
		if ended {
			r.requests.Release(all)
		}
		return ended
	}, patience, time.Millisecond)
	away.Store(false)
	(<-other).place(t)
	r.consume(2)
}

func TestSlowAndLargeRequests(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) {
		o.AckTimeout, o.ReadHeaderTimeout, o.ReadTimeout = 200*time.Millisecond, 300*time.Millisecond, 600*time.Millisecond
		o.MaxHeaderBytes = 1 << 10
	})
	const post = "POST /v1/posts/7/likes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n"

	t.Run("body", func(t *testing.T) {
		resp, body := r.raw(post + `{"user_`)
		require.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
		require.JSONEq(t, `{"type":"urn:kudos:problem:request-timeout","title":"The body came too slowly","status":408,
			"detail":"the body did not arrive in time; nothing of it was written"}`, body)
	})
	t.Run("batch body", func(t *testing.T) {
		resp, _ := r.raw("POST /v1/likes:batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/jsonl\r\nContent-Length: 1000\r\n\r\n" + line(1, 1) + "\n")
		require.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
	})
	t.Run("header", func(t *testing.T) {
		conn := r.dial()
		_, err := io.WriteString(conn, post[:40])
		require.NoError(t, err)
		answer, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.NotContains(t, string(answer), " 202 ")
	})
	t.Run("large header", func(t *testing.T) {
		resp, _ := r.raw("PUT /v1/posts/7/likes/9 HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 16<<10) + "\r\n\r\n")
		require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
	})
	require.Zero(t, r.written())
}
