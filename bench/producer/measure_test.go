package producer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/httpserver/admin"
	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
	"kudos/stream/kafka"
)

var shared = stack.NewShared(stack.KafkaOptions{}, stack.DatabaseOptions{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

const partitions = 4

// startProducer runs `kudos producer` on an empty Kafka, and returns its HTTP address.
func startProducer(t *testing.T, kafka *stack.Kafka) string {
	t.Helper()
	require.NoError(t, kafka.Reset(t.Context()))
	brokers := strings.Join(kafka.Brokers(), ",")
	out, err := exec.CommandContext(testkit.Within(t, time.Minute), shared.Kudos(t), "topics", "apply",
		"--brokers", brokers, "--set", fmt.Sprintf("topics.partitions=%d", partitions),
		"--set", "topics.replication_factor=1").CombinedOutput()
	require.NoError(t, err, "%s", out)

	addr, adminAddr := stack.ReserveForTest(t), stack.ReserveForTest(t)
	p := stack.ProgramForTest(t, stack.ProgramOptions{
		Name: "producer", Path: shared.Kudos(t),
		Args: []string{"producer", "--brokers", brokers, "--set", "producer.http_addr=" + addr,
			"--set", "admin.addr=" + adminAddr, "--set", "producer.max_concurrent_batches=64"},
		Probe: func(ctx context.Context) error { return admin.Ask(ctx, adminAddr) },
	})
	require.NoError(t, p.Start(t.Context()))
	return addr
}

// likesOf reads likes, which must have n events, and returns the number of events per user.
func likesOf(t *testing.T, brokers []string, n int64) map[uint64]int {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	require.NoError(t, err)
	defer client.Close()
	ctx := testkit.Within(t, time.Minute)
	users, read := map[uint64]int{}, int64(0)
	l := &likes{posts: DefaultOptions().Posts}
	for p := range int32(partitions) {
		err := kafka.ReadLog(ctx, client, schema.TopicLikes, p, 0, func(c kafka.LogChunk) (bool, error) {
			for _, r := range c.Records {
				var e schema.Event
				require.NoError(t, schema.DecodeEvent(r.Key, r.Value, &e))
				require.Equal(t, l.post(e.UserID), e.PostID)
				require.Equal(t, schema.Like, e.Action)
				users[e.UserID]++
				read++
			}
			return c.Next < c.End, nil
		})
		require.NoError(t, err)
	}
	require.Equal(t, n, read, "events in likes")
	return users
}

func TestEveryAcceptedLikeIsInTheTopicOnce(t *testing.T) {
	tier.Verify(t)
	kafka := shared.Kafka(t)
	o := DefaultOptions()
	o.Addr, o.LatencyLimit = startProducer(t, kafka), time.Minute // no request is dropped, however slow the machine is
	likes := &likes{next: 1, posts: o.Posts}
	single := &load{options: &o, likes: likes, connections: 32}
	batch := &load{options: &o, likes: likes, lines: 100, connections: 8}
	var sum int64
	for _, l := range []*load{single, batch, single} {
		step, err := l.hold(t.Context(), 1000, time.Second)
		require.NoError(t, err)
		require.Empty(t, step.FirstFailure)
		require.Zero(t, step.Unsent)
		require.EqualValues(t, 1000, step.Accepted)
		sum += step.Accepted
	}
	users := likesOf(t, kafka.Brokers(), sum)
	for user := uint64(1); user <= uint64(sum); user++ {
		require.Equal(t, 1, users[user], "user %d", user)
	}
}

// model is a producer that sustains rates up to a limit.
type model struct {
	capacity float64
	hiccups  map[int]bool // calls that fail at any rate
	calls    int
	rates    []float64
	lasted   []time.Duration
}

func (m *model) hold(_ context.Context, rate float64, d time.Duration) (Step, error) {
	m.calls++
	m.rates, m.lasted = append(m.rates, rate), append(m.lasted, d)
	s := Step{PlannedLikesPerSecond: rate, P99Ms: 5}
	if rate > m.capacity {
		s.P99Ms = 260
	}
	if m.hiccups[m.calls] {
		s.Failed, s.FirstFailure = 1, "a hiccup"
	}
	return s, nil
}

func (m *model) search() *search {
	o := DefaultOptions()
	return &search{options: &o, log: slog.New(slog.DiscardHandler), at: m.hold, found: &Endpoint{}}
}

func (m *model) find(t *testing.T) *Endpoint {
	t.Helper()
	s := m.search()
	require.NoError(t, s.run(t.Context()))
	return s.found
}

func TestSearchFindsTheCapacity(t *testing.T) {
	for _, capacity := range []float64{7, 999, 1000, 1001, 1999, 12_345, 640_000} {
		m := model{capacity: capacity}
		found := m.find(t)
		got := found.Capacity.PlannedLikesPerSecond
		require.True(t, found.Capacity.Carried)
		require.LessOrEqual(t, got, capacity)
		require.Greater(t, got*1.1, capacity, "within a tenth of it")
		require.Equal(t, got/2, found.Half.PlannedLikesPerSecond)
		require.Equal(t, DefaultOptions().HoldFor, m.lasted[len(m.lasted)-1])
		require.Len(t, found.Steps, m.calls-2, "all but the warm-up and the step at half the rate")
	}
}

func TestHighest(t *testing.T) {
	for capacity, want := range map[float64]float64{4: 0, 5: 5, 19: 18.34, 20: 20, 44: 43.62, 79: 73.36, 80: 0} {
		tried, tries := map[float64]int{}, 1+int(capacity)%2
		got, err := Highest(20, 5, 100, tries, func(rate float64) (bool, error) {
			tried[rate]++
			return rate <= capacity, nil
		})
		require.NoError(t, err)
		require.InDelta(t, want, got, 0.01, "capacity %v", capacity)
		require.LessOrEqual(t, len(tried), 6)
		for rate, times := range tried {
			require.Equal(t, map[bool]int{true: 1, false: tries}[rate <= capacity], times)
		}
		require.True(t, want == 0 || capacity < got*Resolution, "capacity %v", capacity)
	}
	broken := errors.New("broken")
	_, err := Highest(20, 5, 100, 2, func(float64) (bool, error) { return false, broken })
	require.Equal(t, broken, err)
}

func TestSearchLooksTwice(t *testing.T) {
	want := (&model{capacity: 12_345}).find(t)
	m := model{capacity: 12_345, hiccups: map[int]bool{1: true, 3: true, 6: true}}
	found := m.find(t)
	require.Equal(t, want.Capacity, found.Capacity)
	require.Len(t, found.Steps, len(want.Steps)+2)
}

func TestSearchWithoutALimit(t *testing.T) {
	for _, capacity := range []float64{0, 1e12} {
		m := model{capacity: capacity}
		require.ErrorContains(t, m.search().run(t.Context()), "no limit was found between 1 and 10000000 likes/s: at ")
	}
	m := model{capacity: 1000, hiccups: map[int]bool{}}
	for i := range 100 {
		m.hiccups[i] = true
	}
	require.ErrorContains(t, m.search().run(t.Context()), "1 failed (a hiccup)")
}

func TestSearchEndsWithAnError(t *testing.T) {
	broken := errors.New("broken")
	s := (&model{}).search()
	s.at = func(context.Context, float64, time.Duration) (Step, error) { return Step{}, broken }
	require.ErrorIs(t, s.run(t.Context()), broken)
}

func TestPercentile(t *testing.T) {
	require.Zero(t, percentile(nil, 500))
	times := make([]time.Duration, 1000)
	for i := range times {
		times[i] = time.Duration(i + 1)
	}
	for perMille, want := range map[int]time.Duration{0: 1, 500: 500, 990: 990, 999: 999, 1000: 1000} {
		require.Equal(t, want, percentile(times, perMille))
	}
	require.Equal(t, time.Duration(1), percentile(times[:1], 999))
}

const accepted = `{"partition":3,"offset":1017}`

func loadOn(t *testing.T, lines int, answer http.HandlerFunc) *load {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	o := DefaultOptions()
	o.Addr = server.Listener.Addr().String()
	return &load{options: &o, likes: &likes{next: 1, posts: 1000}, lines: lines, connections: 32}
}

func TestFailuresAreDistinguished(t *testing.T) {
	for name, c := range map[string]struct {
		lines   int
		status  int
		body    string
		step    Step
		failure string
	}{
		"a like":           {0, 202, accepted, Step{Accepted: 1}, ""},
		"rejected":         {0, 429, `{"detail":"too many"}`, Step{Refused: 1}, "429 Too Many Requests: too many"},
		"not acknowledged": {0, 503, `{"detail":"unknown"}`, Step{Failed: 1}, "503 Service Unavailable: unknown"},
		"a batch":          {3, 202, `{"accepted":3,"rejected":0,"failed":0,"lines":[]}`, Step{Accepted: 3}, ""},
		"part of a batch": {3, 503, `{"accepted":2,"failed":1,"detail":"unknown"}`, Step{Accepted: 2, Failed: 1},
			"503 Service Unavailable: unknown"},
		"a batch with an invalid line": {3, 202, `{"accepted":2,"rejected":1,"failed":0}`, Step{Accepted: 2, Failed: 1},
			"2 of 3 lines were accepted, 1 rejected, 0 failed"},
		"another server": {3, 202, `<html>`, Step{Failed: 1}, "a response with status 202 is not from a producer"},
	} {
		t.Run(name, func(t *testing.T) {
			l := loadOn(t, c.lines, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			got, err := l.hold(t.Context(), 1, time.Second)
			require.NoError(t, err)
			require.Equal(t, 1, got.Requests)
			require.Contains(t, got.FirstFailure, c.failure)
			require.Equal(t, c.failure == "", got.FirstFailure == "")
			require.Equal(t, c.step, Step{Accepted: got.Accepted, Refused: got.Refused, Failed: got.Failed})
		})
	}
}

// Requests that are due while the server stalls are timed from their due time, though they are sent later.
func TestTimesRunFromThePlan(t *testing.T) {
	const stall = 400 * time.Millisecond
	var first sync.Once
	l := loadOn(t, 0, func(w http.ResponseWriter, r *http.Request) {
		first.Do(func() { <-time.After(stall) })
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, accepted)
	})
	l.connections = 1
	l.options.LatencyLimit = time.Minute // no request is dropped, however slow the machine is
	got, err := l.hold(t.Context(), 100, time.Second)
	require.NoError(t, err)
	require.EqualValues(t, 100, got.Accepted)
	// Request 1 is due after 10 ms and answered after at least 400 ms, and so on.
	require.GreaterOrEqual(t, got.P99Ms, 389.0)
	require.GreaterOrEqual(t, got.MaxMs, 399.0)
}

// A server that does not respond stalls the measurement for a bounded time only.
func TestUnsustainableRateEndsEarly(t *testing.T) {
	over := make(chan struct{})
	l := loadOn(t, 0, func(http.ResponseWriter, *http.Request) { <-over })
	t.Cleanup(func() { close(over) }) // before the server closes, which waits for its handlers
	l.connections = 2
	l.options.LatencyLimit = 10 * time.Millisecond
	l.options.RequestTimeout = 100 * time.Millisecond
	got, err := l.hold(t.Context(), 1000, time.Second)
	require.NoError(t, err)
	require.Positive(t, got.Unsent)
	require.Positive(t, got.Failed)
	require.Equal(t, 1000, got.Requests+got.Unsent)
	require.Zero(t, got.Accepted)
}

func TestConnectionRefused(t *testing.T) {
	o := DefaultOptions()
	o.Addr, o.Log = stack.ReserveForTest(t), slog.New(slog.DiscardHandler)
	_, err := Measure(t.Context(), o)
	require.ErrorContains(t, err, "measuring the producer at "+o.Addr+", single endpoint: connecting to the producer: ")
}
