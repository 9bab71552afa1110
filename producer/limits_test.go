package producer

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit/apikit"
)

func (r *rig) postLater(address string, lines ...string) <-chan apikit.Answer {
	return r.Later("POST", batch, strings.Join(lines, "\n"), "Content-Type", ndjson, forwarded, address)
}

const forwarded = "X-Forwarded-For"

// behindProxy lets a test name the address that a request comes from.
func behindProxy(o *Options) { o.TrustedProxies = []string{"127.0.0.0/8"} }

// If the buffer is full, the next request is rejected as a whole, at once. Earlier requests are not affected.
func TestBufferFull(t *testing.T) {
	r := start(t, func(o *Options) { behindProxy(o); o.MaxBatchLines, o.MaxBufferedRecords = 3, 3 })
	held, release := r.hold()
	inFlight := r.postLater("192.0.2.1", line(1, 1), line(1, 2))
	held()
	r.waitBuffered(2)

	full := apikit.Problem(429, "buffer-full", "The buffer for Kafka is full",
		"events arrive faster than Kafka accepts them; nothing was written")
	// One slot is free, but half a batch must not use it.
	r.postLines("", line(1, 3), "x", line(2, 4)).RequireJSON(429, full).RequireHeader("Retry-After", "1")
	mine := "this address holds as many of the events that wait for Kafka as it leaves free for others " +
		"(producer.max_buffered_records); if it is a proxy, list it in producer.trusted_proxies; nothing was written"
	r.put("/v1/posts/1/likes/6", forwarded, "192.0.2.1").RequireJSON(429, apikit.Problem(429, "buffer-full",
		"The buffer for Kafka is full", mine)).RequireHeader("Retry-After", "1")
	inFlightToo := r.putLater("/v1/posts/1/likes/5")
	r.waitBuffered(3)
	r.put("/v1/posts/1/likes/6").RequireJSON(429, full)
	r.requireCount(2, "refused_total", "kind", "events")
	r.requireCount(1, "refused_total", "kind", "address_events")

	release()
	(<-inFlight).Require(accepted)
	(<-inFlightToo).Require(accepted)
	r.put("/v1/posts/1/likes/7").Require(accepted)
	users := []uint64{}
	for _, rec := range r.consume(4) {
		users = append(users, apikit.Event(t, rec).UserID)
	}
	require.Equal(t, []uint64{1, 2, 5, 7}, users)
	r.requireCount(1, "requests_total", "route", batch, "method", "post", "code", "429")
}

// While Kafka is unavailable, a full buffer is not the clients' fault: 503.
func TestBufferFullWhileKafkaIsUnavailable(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) {
		o.MaxBatchLines, o.MaxBufferedRecords = 1, 1
		o.ReadyTimeout, o.AckTimeout = 300*time.Millisecond, 2*time.Second
	})
	r.away().Store(true)
	inFlight := r.putLater("/v1/posts/1/likes/5")
	r.waitBuffered(1)
	r.WaitFor("the producer must become unready", func() bool { return r.Ready() != nil })
	r.put("/v1/posts/1/likes/6").RequireJSON(503, apikit.Problem(503, "buffer-full",
		"The buffer for Kafka is full", "Kafka does not answer; nothing was written")).
		RequireHeader("Retry-After", "1")
	<-inFlight
}

func TestTooManyRequests(t *testing.T) {
	r := start(t, func(o *Options) {
		behindProxy(o)
		o.MaxConcurrentRequests, o.MaxConcurrentBatches, o.RetryAfter = 3, 1, 7*time.Second
	})
	refused := func(a apikit.Answer, what string) {
		a.RequireJSON(429, apikit.Problem(429, "too-many-requests", "Too many concurrent requests",
			what+"; nothing was written")).RequireHeader("Retry-After", "7")
	}
	held, release := r.hold()
	answers := []<-chan apikit.Answer{r.postLater("192.0.2.1", line(1, 1))}
	held()
	refused(r.postLines("", line(1, 2)), "the limit of concurrent batches is reached (producer.max_concurrent_batches)")
	answers = append(answers, r.putLater("/v1/posts/1/likes/3"))
	r.waitBuffered(2)
	refused(r.put(like), "this address holds as many of the concurrent requests as it leaves free for "+
		"others (producer.max_concurrent_requests); if it is a proxy, list it in producer.trusted_proxies")
	answers = append(answers,
		r.putLater("/v1/posts/1/likes/4", forwarded, "192.0.2.2"))
	r.waitBuffered(3)
	refused(r.put(like), "the limit of concurrent requests is reached (producer.max_concurrent_requests)")
	requireRefused(r.put(like, forwarded, "192.0.2.2"), 429, "too-many-requests", "the limit of concurrent requests")
	r.requireCount(2, "refused_total", "kind", "requests")
	r.requireCount(1, "refused_total", "kind", "batches")

	release()
	for _, answered := range answers {
		(<-answered).Require(accepted)
	}
	r.put("/v1/posts/1/likes/5").Require(accepted)
	r.postLines("", line(1, 6)).Require(accepted)
	require.EqualValues(t, 5, r.written())
}

// The client must accept everything that p.buffer accepts: otherwise it would reject single lines of a batch.
func TestClientBuffersAsManyRecordsAsConfigured(t *testing.T) {
	r := start(t, nil)
	require.Greater(t, r.client.Load().OptValue(kgo.MaxBufferedRecords), int64(r.options.MaxBufferedRecords))
}

// longAck sets timeouts longer than the test's patience: something else must end a wait.
func longAck(o *Options) {
	o.AckTimeout, o.ShutdownTimeout, o.WriteTimeout = 2*patience, 3*patience, 4*patience
}

func (r *rig) putAndLeave(path string, inFlight func()) {
	r.T.Helper()
	conn := r.Dial("PUT " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")
	inFlight()
	require.NoError(r.T, conn.Close())
}

// A client that disconnects frees its slot at once; its event is still written.
func TestClientGoesAway(t *testing.T) {
	r := start(t, func(o *Options) { longAck(o); o.MaxConcurrentRequests = 1 })
	held, release := r.hold()
	r.putAndLeave(like, func() { held(); r.put("/v1/posts/7/likes/8").Require(429) })
	r.WaitFor("the slot must be released", func() bool { return r.put("/nothing").Status == http.StatusNotFound })
	release()
	r.consume(1)
}

// A client that disconnects does not fail the events of others that wait for the same partition.
func TestOthersOutliveAClientThatGoesAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, longAck)
	away := r.away()
	away.Store(true)
	r.Start()
	var other <-chan apikit.Answer
	r.putAndLeave("/v1/posts/7/likes/1", func() {
		r.waitBuffered(1)
		other = r.putLater("/v1/posts/7/likes/2")
		r.waitBuffered(2)
	})
	all := int64(r.options.MaxConcurrentRequests) - 1
	r.WaitFor("only the other request must still hold a slot", func() bool { return r.requests.TryAcquire(all) })
	r.requests.Release(all)
	away.Store(false)
	(<-other).Require(accepted)
	r.consume(2)
}

func TestSlowAndLargeRequests(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) {
		o.AckTimeout, o.MaxHeaderBytes = 200*time.Millisecond, 1<<10
		o.ReadHeaderTimeout, o.ReadTimeout = 300*time.Millisecond, 600*time.Millisecond
	})
	const head = " HTTP/1.1\r\nHost: x\r\n"
	const post = "POST " + likes + head + "Content-Type: application/json\r\nContent-Length: 13\r\n\r\n"

	raw := func(request string) apikit.Answer { return apikit.ReadFrom(t, r.Dial(request)) }
	raw(post+`{"user_`).RequireJSON(http.StatusRequestTimeout, apikit.Problem(408, "request-timeout",
		"Request timeout", "the body did not arrive in time; nothing was written"))
	raw("POST " + batch + head + "Content-Type: application/jsonl\r\nContent-Length: 1000\r\n\r\n" + line(1, 1) + "\n").
		Require(http.StatusRequestTimeout)
	answer, err := io.ReadAll(r.Dial(post[:40]))
	require.NoError(t, err)
	require.NotContains(t, string(answer), " 202 ", "an incomplete header")
	raw("PUT " + like + head + "X: " + strings.Repeat("x", 16<<10) + "\r\n\r\n").
		Require(http.StatusRequestHeaderFieldsTooLarge)
	require.Zero(t, r.written())
}

func (r *rig) requireServed() {
	r.T.Helper()
	r.put("/v1/posts/7/likes/8").Require(accepted)
	r.postLike(likes, `{"user_id":9}`).Require(accepted)
	r.postLines("", line(7, 10)).Require(accepted)
	r.Send(http.MethodGet, "/openapi.yaml", "").Require(http.StatusOK)
}

// Requests whose bodies do not arrive take no slot: other clients are still served.
func TestRegressUnfinishedBodies(t *testing.T) {
	const slots = 4
	begin := func(t testing.TB) *rig {
		return start(t, func(o *Options) {
			o.MaxConcurrentRequests, o.MaxConcurrentBatches = slots, slots/2
			o.ReadTimeout, o.WriteTimeout = 2*patience, 4*patience // nothing times out
		})
	}
	t.Run("single", func(t *testing.T) {
		r := begin(t)
		for range 3 * slots {
			r.Unfinished(likes, "application/json", `{"user_`)
		}
		r.requireServed()
	})
	t.Run("batch", func(t *testing.T) {
		r := begin(t)
		for range 3 * slots {
			r.Unfinished(batch, "application/jsonl", line(7, 1)+"\n"+line(7, 2))
		}
		r.requireServed()
		require.EqualValues(t, 3, r.written(), "an incomplete batch must write nothing")
	})
	t.Run("unread body", func(t *testing.T) {
		r := begin(t)
		for i := range 3 * slots {
			r.Dial("PUT " + like + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
			r.waitMetric(i+1, "kudos_producer_accepted_total")
		}
		r.requireServed()
	})
}

func TestOldestUnfinishedBodyGets408(t *testing.T) {
	r := start(t, func(o *Options) {
		o.MaxConcurrentRequests, o.MaxConcurrentBatches, o.MaxBatchBytes = 4, 1, 2_000
		o.ReadTimeout, o.WriteTimeout = 2*patience, 4*patience
	})
	begin := strings.Repeat(line(7, 1)+"\n", 15) // of 1,000 bytes, all but the last lines
	oldest := r.Unfinished(batch, "application/jsonl", begin)
	var newest net.Conn
	for range 4 {
		newest = r.Unfinished(batch, "application/jsonl", begin)
	}
	requireRefused(apikit.ReadFrom(t, oldest), http.StatusRequestTimeout, "request-timeout", "")
	require.Zero(t, r.written())

	_, err := io.WriteString(newest, strings.Repeat("\n", 1000-len(begin)))
	require.NoError(t, err)
	apikit.ReadFrom(t, newest).Require(accepted)
	r.requireServed()
}
