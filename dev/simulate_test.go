//go:build !nodev

package dev

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/testrun"
	"kudos/schema"
	"kudos/stream/kafka"
)

func TestPacerDoesNotDrift(t *testing.T) {
	p := pacer{rate: 333, begun: begun}
	sent, now := 0, begun
	for i := range 10_000 { // uneven ticks
		now = now.Add(time.Duration(1+i%20) * time.Millisecond)
		due := p.due(now)
		require.LessOrEqual(t, due, 8, "evenly")
		sent += due
	}
	require.InDelta(t, 333*now.Sub(begun).Seconds(), sent, 1)
}

func TestPacerLetsALongPauseGo(t *testing.T) {
	p := pacer{rate: 1000, begun: begun}
	require.Equal(t, 1000, p.due(begun.Add(time.Hour)))
	require.Equal(t, 10, p.due(begun.Add(time.Hour+10*time.Millisecond)))
	slow := pacer{rate: 0.5, begun: begun}
	require.Zero(t, slow.due(begun.Add(1900*time.Millisecond)))
	require.Equal(t, 1, slow.due(begun.Add(2100*time.Millisecond)))
}

func TestShareIsEven(t *testing.T) {
	s, n := newShare(0.01), 0
	for range 10_000 {
		if s.next() {
			n++
		}
	}
	require.InDelta(t, 100, n, 1)
}

// api takes what the producer's API takes.
type api struct {
	mu       sync.Mutex
	requests []string
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = append(a.requests, r.Method+" "+r.URL.String())
	w.WriteHeader(http.StatusAccepted)
}

func TestSimulatorPublishes(t *testing.T) {
	b := startBroker(t)
	createTopics(t, b, 4)
	var posts api
	server := httptest.NewServer(&posts)
	defer server.Close()
	o := DefaultSimulatorOptions()
	o.Rate, o.Seed = 20_000, 1
	o.HTTPAddress, o.HTTPShare = strings.TrimPrefix(server.URL, "http://"), 0.05
	s := NewSimulator(o, kafkaOptions(b), discardLog())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	require.Eventually(t, func() bool {
		c := s.Counts()
		return c.Published > 3_000 && c.OverHTTP > 20
	}, 20*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)

	counts := s.Counts()
	require.Zero(t, counts.Failed)
	posts.mu.Lock()
	defer posts.mu.Unlock()
	require.EqualValues(t, counts.OverHTTP, len(posts.requests))
	require.Regexp(t, `^(PUT /v1/posts/\d+/(dis)?likes|DELETE /v1/posts/\d+/likes)/\d+\?region=[A-Z-]+$`, posts.requests[0])

	consumer := newClient(t, b, kgo.ConsumeTopics(schema.TopicLikes))
	for _, r := range read(t, consumer, int(counts.Published-counts.OverHTTP)) {
		var e schema.Event
		require.NoError(t, schema.DecodeEvent(r.Key, r.Value, &e))
		require.Equal(t, schema.PartitionFor(e.PostID, 4), r.Partition)
	}
}

// TestSimulatorFillsYesterdayOnce: only a Kafka without events gets it.
func TestSimulatorFillsYesterdayOnce(t *testing.T) {
	b := startBroker(t)
	createTopics(t, b, 4)
	o := DefaultSimulatorOptions()
	o.Rate, o.Yesterday = 1, 2_400
	run := func(published uint64) {
		t.Helper()
		s := NewSimulator(o, kafkaOptions(b), discardLog())
		stop := testrun.Start(t, "the simulator", 20*time.Second, s.Run)
		require.Eventually(t, func() bool { return s.Counts().Published >= published }, 20*time.Second, time.Millisecond)
		stop()
		require.Less(t, s.Counts().Published, published+100)
	}
	started := time.Now()
	run(2_401)
	run(1)
	hours := map[time.Time]int{}
	for _, r := range read(t, newClient(t, b, kgo.ConsumeTopics(schema.TopicLikes)), 2_402) {
		var e schema.Event
		require.NoError(t, schema.DecodeEvent(r.Key, r.Value, &e))
		hours[time.UnixMilli(e.TimeMs).Truncate(time.Hour)]++
	}
	for ago := 1; ago < 24; ago++ {
		hour := started.Add(-time.Duration(ago) * time.Hour).Truncate(time.Hour)
		require.Greater(t, hours[hour], 30, "events of %s", hour)
	}
}

func TestSimulatorEndsWhileKafkaIsAway(t *testing.T) {
	o := DefaultSimulatorOptions()
	o.Rate, o.MaxInFlight, o.FlushTimeout = 100_000, 10, 10*time.Millisecond
	o.Yesterday = 0
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections and never answers
	require.NoError(t, err)
	defer silent.Close()
	kafka := kafka.DefaultOptions()
	kafka.Brokers = []string{silent.Addr().String()}
	s := NewSimulator(o, kafka, discardLog())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	require.Eventually(t, func() bool { return len(s.inFlight) == 10 }, 10*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	require.Zero(t, s.Counts().Published)
}

func TestSimulatorRefusesItsOptions(t *testing.T) {
	o := DefaultSimulatorOptions()
	require.ErrorContains(t, NewSimulator(o, kafka.DefaultOptions(), discardLog()).Run(t.Context()), "rate is 0")
}
