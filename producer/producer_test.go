package producer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/schema"
	"kudos/stream/kafka"
)

func TestShutdownLosesNothingAccepted(t *testing.T) {
	r := start(t, nil)
	held, release := r.hold()
	const singles = 20
	answers := []<-chan apikit.Answer{r.postLater("", line(50, 1), line(51, 2))}
	for i := range singles {
		answers = append(answers, r.putLater(fmt.Sprintf("/v1/posts/%d/likes/9", i+1)))
	}
	held()
	r.waitBuffered(singles + 2)

	r.Stop()
	r.WaitClosed()
	require.Empty(t, r.Ended, "Run must wait for the requests in flight")

	release()
	for _, answered := range answers {
		(<-answered).Require(accepted)
	}
	require.NoError(t, <-r.Ended)
	r.consume(singles + 2)
}

// At shutdown the client delivers what it buffers, although the request was answered long ago. Nothing is left running.
func TestShutdownDeliversWhatIsBuffered(t *testing.T) {
	r := start(t, nil)
	away := r.away()
	away.Store(true)
	r.putAndLeave(like, func() { r.waitBuffered(1) })
	stacks := func() string {
		buf := make([]byte, 1<<20)
		return string(buf[:runtime.Stack(buf, true)])
	}
	const client, ours = "franz-go/pkg/kgo.", "kudos/producer.(*Producer)"
	require.Contains(t, stacks(), client)
	require.Contains(t, stacks(), ours)
	r.Stop()
	r.WaitFor("shutdown must start", func() bool { return strings.HasSuffix(fmt.Sprint(r.Ready()), "shutting down") })
	away.Store(false)
	require.NoError(t, <-r.Ended)
	r.WaitFor("all goroutines must end", func() bool {
		return !strings.Contains(stacks(), client) && !strings.Contains(stacks(), ours)
	})
	r.consume(1)
}

// If Kafka stays unavailable, shutdown is still bounded, and no request is answered as accepted.
func TestShutdownWithoutKafka(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.AckTimeout, o.ShutdownTimeout = 300*time.Millisecond, 2*time.Second })
	held, release := r.hold()
	answered := r.putLater(like + "?time_ms=5")
	held()
	began := time.Now()
	r.Stop()
	(<-answered).RequireJSON(503, notAcknowledged(5, silent))
	require.NoError(t, <-r.Ended)
	require.Less(t, time.Since(began), 5*time.Second)
	release()
}

// A request that is still being received when the time is up is cut off, and nothing of it was written.
func TestShutdownInterruptsASlowRequest(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) {
		o.AckTimeout, o.ShutdownTimeout, o.MaxConcurrentRequests = 2*time.Second, 3*time.Second, 1
	})
	r.Unfinished(batch, "application/jsonl", line(1, 1)+"\n")
	r.Stop()
	err := <-r.Ended
	require.ErrorContains(t, err, "producer: requests were interrupted after 3s")
	require.NotContains(t, err.Error(), "did not end")
	require.Zero(t, r.written())
}

func TestHandlerWithoutRun(t *testing.T) {
	r := newRig(t, nil)
	require.Empty(t, r.Addr())
	require.ErrorContains(t, r.Ready(), "the producer is not running")
	apikit.Ask(t, r.HTTP.Handler, httptest.NewRequest("PUT", like, nil)).RequireJSON(503,
		apikit.Problem(503, "not-running", "Service unavailable",
			"the producer is starting or shutting down; nothing was written"))
}

func TestMetrics(t *testing.T) {
	r := start(t, nil)
	r.requireCount(0, "rejected_total", "reason", "over_size") // known reasons and kinds start at zero
	for _, kind := range []string{"unauthenticated", "forbidden", "address_rate", "user_rate"} {
		r.requireCount(0, "refused_total", "kind", kind)
	}
	r.put(like).Require(accepted)
	r.put("/v1/posts/0/likes/9")
	r.postLines("", line(1, 1), "{}")
	const route = "/v1/posts/{post_id}/likes/{user_id}"
	r.requireCount(1, "requests_total", "route", route, "method", "put", "code", "202")
	r.requireCount(1, "requests_total", "route", route, "method", "put", "code", "400")
	r.requireCount(2, "rejected_total", "reason", "zero_id")
	r.requireCount(2, "publish_seconds")
	r.requireCount(2, "accepted_total")
	r.requireCount(0, "unacknowledged_total")
	r.waitBuffered(0) // kgo runs the promise before it uncounts a record
}

func TestNewRejectsInvalidOptions(t *testing.T) {
	reg := prometheus.NewRegistry()
	create := func(o Options, brokers ...string) error {
		kafka := kafka.DefaultOptions()
		kafka.Brokers = brokers
		_, err := New(o, kafka, testkit.Log(), reg)
		return err
	}
	require.ErrorContains(t, create(Options{}, "localhost:9092"), "producer options: producer.http_addr")
	require.ErrorContains(t, create(DefaultOptions()), "kafka.brokers")
	require.NoError(t, create(DefaultOptions(), "localhost:9092"))
	require.ErrorContains(t, create(DefaultOptions(), "localhost:9092"), "registering the producer's metrics")
}

func TestRunRejectsInvalidInput(t *testing.T) {
	r := start(t, nil)
	require.ErrorContains(t, r.Run(context.Background()), "Run was called twice")
	taken := newRig(t, func(o *Options) { o.HTTPAddr = r.Addr() })
	require.ErrorContains(t, taken.Run(context.Background()),
		"producer: listening on "+r.Addr()+" (set producer.http_addr to a free host:port): ")
	r.End()
}

// With a certificate likes are accepted over HTTPS only. Without its files the producer does not start.
func TestTLS(t *testing.T) {
	client, cert, key := apikit.TLSFiles(t)
	r := newRig(t, func(o *Options) { o.TLSCert, o.TLSKey = cert+".new", key })
	require.ErrorContains(t, r.Run(t.Context()), "producer.tls_cert: open "+cert+".new")
	require.Empty(t, r.Addr())

	r = start(t, func(o *Options) { o.TLSCert, o.TLSKey = cert, key })
	resp, err := apikit.Do(t, client, http.MethodPut, "https://"+r.Addr()+like, "")
	require.NoError(t, err)
	require.NotNil(t, resp.TLS)
	apikit.Read(t, resp).Require(accepted)
	plain := <-r.putLater(like)
	require.Contains(t, []int{0, http.StatusBadRequest}, plain.Status, "plain HTTP: %s", plain.Body)
	r.consume(1)
	client.CloseIdleConnections()
}

func notAcknowledged(timeMs int64, why string, more ...string) string {
	return apikit.Problem(503, "not-acknowledged", "Not acknowledged by Kafka",
		"outcome unknown: safe to retry, with this time_ms so that it keeps its order: "+why,
		append(more, fmt.Sprintf(`"time_ms":%d`, timeMs))...)
}

// silent is the reason that is given with shortAck.
const silent = "Kafka has not answered within 300ms"

func shortAck(o *Options) { o.AckTimeout, o.ReadyTimeout = 300*time.Millisecond, 300*time.Millisecond }

func TestKafkaUnavailable(t *testing.T) {
	t.Parallel()
	r := start(t, shortAck)
	away := r.away()
	away.Store(true)

	began := time.Now()
	r.put(like+"?time_ms=5").RequireJSON(503, notAcknowledged(5, silent)).RequireHeader("Retry-After", "1")
	require.Less(t, time.Since(began), 5*time.Second, "the response time must be bounded")
	r.postLike(likes, `{"user_id":9,"time_ms":5}`).RequireJSON(503, notAcknowledged(5, silent))
	b := decodeBatch(r.postLines("?time_ms=8", `x`, line(1, 1), line(2, 2)).Require(503), 0, 1, 2)
	require.Equal(t, 2, *b.FirstUnacceptedLine)
	require.EqualValues(t, 8, b.TimeMs)
	require.Equal(t, silent, b.Lines[1].Detail)

	r.WaitFor("the producer must become unready", func() bool { return r.Ready() != nil })
	require.ErrorContains(t, r.Ready(), "returned no metadata for topic likes")
	r.requireCount(0, "accepted_total")
	r.requireCount(4, "unacknowledged_total")

	// When Kafka recovers, a repeated event keeps its order, whether or not the first was written too.
	away.Store(false)
	r.WaitFor("the producer must become ready", func() bool { return r.Ready() == nil })
	var a apikit.Answer
	r.WaitFor("likes must be accepted again", func() bool {
		a = r.put(like + "?time_ms=5")
		return a.Status == accepted
	})
	r.waitBuffered(0)
	records := r.consume(int(r.written()))
	_, want := record(t, records, placeOf(a))
	for _, rec := range records {
		if string(rec.Key) == "7" {
			require.Equal(t, want, apikit.Event(t, rec))
		}
	}
}

// If Kafka was never available, the response is the same, in the same time.
func TestKafkaNeverAvailable(t *testing.T) {
	t.Parallel()
	r := newRig(t, shortAck)
	r.away().Store(true)
	r.Start()
	require.ErrorContains(t, r.Ready(), "producer: Kafka at [")
	r.put(like+"?time_ms=5").RequireJSON(503, notAcknowledged(5, silent))
	r.End()
}

func TestTopicMissing(t *testing.T) {
	t.Parallel()
	r := newRig(t, shortAck)
	require.NoError(t, r.cluster.DeleteTopic(schema.TopicLikes))
	r.Start()
	r.WaitFor("the producer must report the missing topic", func() bool {
		return strings.Contains(fmt.Sprint(r.Ready()), "`kudos topics apply`")
	})
	r.put(like).Require(503)

	require.NoError(t, r.cluster.CreateTopic(schema.TopicLikes, partitions, nil))
	r.WaitFor("the producer must become ready", func() bool { return r.Ready() == nil })
	r.WaitFor("likes must be accepted", func() bool { return r.put(like).Status == accepted })
}

func TestReady(t *testing.T) {
	r := start(t, func(o *Options) { o.ReadyTimeout = time.Hour })
	r.health.answered(errors.New("metadata request failed"))
	require.NoError(t, r.Ready(), "a failure counts only after ready_timeout")
	r.health.answered(kerr.UnknownTopicOrPartition)
	require.ErrorContains(t, r.Ready(), "the topic likes does not exist; create it with `kudos topics apply`")
	r.health.answered(errors.New("metadata request failed"))
	require.ErrorContains(t, r.Ready(), "returned no metadata for topic likes: metadata request failed")
	r.health.answered(nil)
	require.NoError(t, r.Ready())
}

// A retry inside the client writes the event once.
func TestClientRetries(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.cluster.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend}, // but written
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition},
	)
	began := time.Now()
	r.put(like).Require(accepted)
	require.EqualValues(t, 1, r.written())
	require.Less(t, time.Since(began), 4*time.Second, "the new leader must be looked up at once")
}

// An acknowledgment after the request has stopped waiting does not change its response.
func TestLateAcknowledgement(t *testing.T) {
	r := start(t, nil)
	held, release := r.hold()
	gone, leave := context.WithCancel(context.Background())
	go func() { held(); leave() }()
	acks, err := r.publish(gone, netip.Addr{}, []schema.Event{{PostID: 7, UserID: 9, Action: schema.Like}})
	require.NoError(t, err)
	release()
	r.waitBuffered(0)
	require.True(t, r.buffer.TryAcquire(int64(r.options.MaxBufferedRecords)), "its slot must be released")
	require.Equal(t, []ack{{}}, acks)
	r.requireCount(1, "unacknowledged_total")
	r.requireCount(0, "accepted_total")
	r.consume(1)
}
