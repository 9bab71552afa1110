package producer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
)

// away makes the broker hang up on every request while the flag is set.
func (r *rig) away() *atomic.Bool {
	var away atomic.Bool
	r.cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		r.cluster.KeepControl()
		return nil, errors.New("away"), away.Load()
	})
	return &away
}

func notAcknowledged(timeMs int64, why string) string {
	return fmt.Sprintf(`{"type":"urn:kudos:problem:not-acknowledged","title":"Kafka has not acknowledged","status":503,"time_ms":%d,
		"detail":"unknown: not acknowledged, safe to repeat (with this time_ms it keeps its place): %s"}`, timeMs, why)
}

func shortAck(o *Options) { o.AckTimeout, o.ReadyTimeout = 300*time.Millisecond, 300*time.Millisecond }

func TestKafkaAway(t *testing.T) {
	t.Parallel()
	r := start(t, shortAck)
	away := r.away()
	away.Store(true)

	began := time.Now()
	a := r.put("/v1/posts/7/likes/9?time_ms=5")
	a.requireJSON(t, http.StatusServiceUnavailable, notAcknowledged(5, "Kafka has not answered within 300ms"))
	require.Equal(t, "1", a.header.Get("Retry-After"))
	require.Less(t, time.Since(began), 5*time.Second, "the answer is bounded in time")

	a = r.postLikeBody("/v1/posts/7/likes", `{"user_id":9,"time_ms":5}`)
	a.requireJSON(t, http.StatusServiceUnavailable, notAcknowledged(5, "Kafka has not answered within 300ms"))

	a = r.postLines("?time_ms=8", `x`, line(1, 1), line(2, 2))
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	b := decodeBatch(t, a)
	require.Equal(t, [3]int{0, 1, 2}, [3]int{b.Accepted, b.Rejected, b.Failed})
	require.Equal(t, 2, *b.FirstUnacceptedLine)
	require.EqualValues(t, 8, b.TimeMs)
	require.Equal(t, "Kafka has not answered within 300ms", b.Lines[1].Detail)

	require.Eventually(t, func() bool { return r.Ready() != nil }, patience, time.Millisecond)
	require.ErrorContains(t, r.Ready(), "does not answer for the topic likes")
	require.Zero(t, r.metric("kudos_producer_accepted_total"))
	require.EqualValues(t, 4, r.metric("kudos_producer_unacknowledged_total"))

	// It comes back: what is repeated keeps its place, whether or not the first came
	// through too.
	away.Store(false)
	require.Eventually(t, func() bool { return r.Ready() == nil }, patience, time.Millisecond)
	require.Eventually(t, func() bool {
		a = r.put("/v1/posts/7/likes/9?time_ms=5")
		return a.status == http.StatusAccepted
	}, patience, time.Millisecond)
	at := a.place(t)
	require.Eventually(t, func() bool { return r.metric("kudos_producer_buffered_records") == 0 }, patience, time.Millisecond)
	records := r.consume(int(r.written()))
	_, want := record(t, records, at)
	for _, rec := range records {
		if string(rec.Key) != "7" {
			continue
		}
		_, e := record(t, records, position{rec.Partition, rec.Offset})
		require.Equal(t, want, e)
	}
}

// Kafka was never there: the answer is the same, and as bounded.
func TestKafkaNeverThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, shortAck)
	r.away().Store(true)
	r.run()
	require.ErrorContains(t, r.Ready(), "producer: Kafka at [")
	r.put("/v1/posts/7/likes/9?time_ms=5").requireJSON(t, http.StatusServiceUnavailable, notAcknowledged(5, "Kafka has not answered within 300ms"))
	r.stop()
	require.NoError(t, <-r.ended)
}

func TestTopicMissing(t *testing.T) {
	t.Parallel()
	r := newRig(t, shortAck)
	require.NoError(t, r.cluster.DeleteTopic(schema.TopicLikes))
	r.run()
	require.Eventually(t, func() bool {
		err := r.Ready()
		return err != nil && strings.Contains(err.Error(), "`kudos topics apply`")
	}, patience, time.Millisecond)
	a := r.put("/v1/posts/7/likes/9")
	require.Equal(t, http.StatusServiceUnavailable, a.status)

	require.NoError(t, r.cluster.CreateTopic(schema.TopicLikes, partitions, nil))
	require.Eventually(t, func() bool { return r.Ready() == nil }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return r.put("/v1/posts/7/likes/9").status == http.StatusAccepted }, patience, time.Millisecond)
}

func TestReady(t *testing.T) {
	r := start(t, func(o *Options) { o.ReadyTimeout = time.Hour })
	r.publisher.health.answered(errors.New("a look that failed"))
	require.NoError(t, r.Ready(), "silence counts only with time")
	r.publisher.health.answered(kerr.UnknownTopicOrPartition)
	require.ErrorContains(t, r.Ready(), "the topic likes does not exist; create it with `kudos topics apply`")
	r.publisher.health.answered(errors.New("a look that failed"))
	require.ErrorContains(t, r.Ready(), "does not answer for the topic likes: a look that failed")
	r.publisher.health.answered(nil)
	require.NoError(t, r.Ready())
}

// A retry inside the client writes the event once.
func TestClientRetries(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.cluster.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend}, // answered so, and written
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition},
	)
	began := time.Now()
	r.put("/v1/posts/7/likes/9").place(t)
	require.EqualValues(t, 1, r.written())
	require.Less(t, time.Since(began), 4*time.Second, "a leader that moved is looked for at once")
}

// What lands after the request has stopped waiting leaves its answer alone.
func TestLateAcknowledgement(t *testing.T) {
	f := newFlight(2)
	f.land(1, position{3, 5}, nil)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	acks := f.wait(gone, patience)
	f.land(0, position{3, 4}, nil)
	require.Equal(t, []ack{{}, {accepted: true, position: position{3, 5}}}, acks)
	wait(t, f.landed, "the last one lands")
}
