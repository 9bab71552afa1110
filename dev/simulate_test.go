//go:build !nodev

package dev

import (
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
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

func TestSimulatorPublishes(t *testing.T) {
	b, _ := startBroker(t, "", 4)
	var requests sync.Map // to the producer's API
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Store(new(int), r.Method+" "+r.URL.String())
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	o := DefaultSimulatorOptions()
	o.Rate, o.Seed = 20_000, 1
	o.HTTPAddress, o.HTTPEvery = server.Listener.Addr().String(), 20
	s := NewSimulator(o, b.kafka(), testkit.Log())
	stop := testrun.Start(t, "the simulator", patience, s.Run)
	require.Eventually(t, func() bool {
		c := s.Counts()
		return c.Published > 3_000 && c.OverHTTP > 20
	}, patience, time.Millisecond)
	stop()

	counts := s.Counts()
	require.Zero(t, counts.Failed)
	for _, request := range requests.Range {
		require.Regexp(t, `^(PUT /v1/posts/\d+/(dis)?likes|DELETE /v1/posts/\d+/likes)/\d+\?region=[A-Z-]+$`, request)
		counts.Published--
		counts.OverHTTP--
	}
	require.Zero(t, counts.OverHTTP, "requests that were not sent or not counted")
	for _, r := range read(t, newClient(t, b, kgo.ConsumeTopics(schema.TopicLikes)), int(counts.Published)) {
		var e schema.Event
		require.NoError(t, schema.DecodeEvent(r.Key, r.Value, &e))
		require.Equal(t, schema.PartitionFor(e.PostID, 4), r.Partition)
	}
}

// TestSimulatorFillsYesterdayOnce: only an empty topic is filled.
func TestSimulatorFillsYesterdayOnce(t *testing.T) {
	b, _ := startBroker(t, "", 4)
	o := DefaultSimulatorOptions()
	o.Rate, o.Yesterday = 1, 2_400
	run := func(published uint64) {
		t.Helper()
		s := NewSimulator(o, b.kafka(), testkit.Log())
		stop := testrun.Start(t, "the simulator", patience, s.Run)
		require.Eventually(t, func() bool { return s.Counts().Published >= published }, patience, time.Millisecond)
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

func TestSimulatorEndsWhileKafkaIsUnavailable(t *testing.T) {
	o := DefaultSimulatorOptions()
	o.Rate, o.MaxInFlight, o.FlushTimeout, o.Yesterday = 100_000, 10, 10*time.Millisecond, 0
	silent, err := net.Listen("tcp", free) // accepts connections and never responds
	require.NoError(t, err)
	defer silent.Close()
	kafka := kafka.DefaultOptions()
	kafka.Brokers = []string{silent.Addr().String()}
	s := NewSimulator(o, kafka, testkit.Log())
	stop := testrun.Start(t, "the simulator", patience, s.Run)
	require.Eventually(t, func() bool { return len(s.inFlight) == 10 }, patience, time.Millisecond)
	stop()
	require.Zero(t, s.Counts().Published)
}

func TestCheckRate(t *testing.T) {
	for _, rate := range []float64{0, -1, 1e6 + 1, math.NaN()} {
		require.ErrorContains(t, CheckRate(rate), "rate is "+strconv.FormatFloat(rate, 'g', -1, 64))
	}
	require.NoError(t, CheckRate(1e6))
}
