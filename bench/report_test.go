package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"kudos/bench/producer"
	"kudos/dev/devtest"
	"kudos/dev/testkit"
	"kudos/schema"
)

// accepted is the result of a producer that accepts single likes at a rate.
func accepted(rate float64) *producer.Result {
	of := func(likes, connections int) producer.Endpoint {
		step := producer.Step{LikesPerSecond: rate * float64(likes), Accepted: 5}
		return producer.Endpoint{
			LikesPerRequest: likes, Connections: connections, Capacity: step,
			Steps: []producer.Step{{Accepted: 1}, step},
			Half:  producer.Step{Accepted: 20, P50Ms: 2, P99Ms: 99 * float64(likes), P999Ms: 7000},
		}
	}
	return &producer.Result{LatencyLimitMs: 250, Single: of(1, 256), Batch: of(1000, 32)}
}

func TestText(t *testing.T) {
	r := NewReport("", &Kudos{})
	for round := range 3 {
		rate := 12_000 + 100*float64(round)
		level := LatencyLevel{Percent: 50, Kafka: Quantiles{Probes: 9, P50: 1.5}, MySQL: Quantiles{Behind: true},
			Reader: &Quantiles{Probes: 9, P99: rate}, Seconds: 2,
			Used: map[string]Usage{SenderProcess: {CPUSeconds: 0.2}}}
		for _, run := range []Run{
			{Latency: &Latency{Levels: []LatencyLevel{level}, DrainEventsPerSecond: 2 * rate,
				Sustainable: &Sustainable{EventsPerSecond: rate}}},
			{Latency: &Latency{Levels: []LatencyLevel{{Events: 70}}}}, // of an earlier report
			{Recovery: &Recovery{Pairs: 5000, EntriesPerSecond: rate}},
			{Producer: accepted(rate), Load: DefaultProducerPlan().load()},
		} {
			run.Contender = "kudos"
			r.Runs = append(r.Runs, run)
		}
	}
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text, "kudos"))
	for _, line := range []string{
		`SUSTAINABLE +p99 in MySQL is 1 s at most and does not rise`,
		`  sustainable rate +12,100 \(12,000–12,200\) events/s`,
		`  share of the drain rate +50 %`,
		`LATENCY +50 %`,
		`  visible in Kafka, p50 +1\.50 ms`,
		`  visible in MySQL, p99 +∞ ms`,
		`  visible in the reader, p99 +12,100 \(12,000–12,200\) ms`,
		`  CPU of the sender +10 % of a core`,
		`RECOVERY +without local state`,
		`  pairs +5,000 `,
		`  pairs per second +12,100 \(12,000–12,200\) `,
		`ACCEPTING +1,000 posts, 4 partitions, single likes`,
		`  highest rate +12,100 \(12,000–12,200\) likes/s`,
		`ACCEPTING +1,000 posts, 4 partitions, batches of 1,000`,
		`  p99\.9 at half the highest rate +7,000 ms`,
	} {
		require.Regexp(t, "(?m)^"+line+"$", text.String())
	}
	require.NotContains(t, text.String(), "70")
}

// TestMissingAcceptedLikesAreReported: a producer that accepts likes which do not reach Kafka gets no figures.
func TestMissingAcceptedLikesAreReported(t *testing.T) {
	k := devtest.NewKafka(t, kfake.SeedTopics(2, schema.TopicLikes))
	s := &Servers{Kafka: k.Options, DSN: "/", Log: slog.New(slog.DiscardHandler)}
	require.NoError(t, s.connect())
	t.Cleanup(s.disconnect)
	k.Write(testkit.Records(schema.TopicLikes, 0, 0, 51)...)
	require.EqualError(t, s.haveAccepted(testkit.Context(t), accepted(1)),
		"the producer has accepted 52 likes, but likes has 51")
	k.Write(testkit.Record(schema.TopicLikes, 1, "7", "a like"))
	require.NoError(t, s.haveAccepted(testkit.Context(t), accepted(1)))
}

// TestProbesAreQueriedAgain: a query that times out is repeated and its time counts; an error ends the run.
func TestProbesAreQueriedAgain(t *testing.T) {
	answers := []error{context.DeadlineExceeded, nil, errors.New("no such table")}
	var seen []likesOf
	err := every(time.Millisecond, func(context.Context, []uint64) ([]likesOf, error) {
		err := answers[0]
		if answers = answers[1:]; err != nil {
			return nil, err
		}
		return []likesOf{{1, 2}}, nil
	})(testkit.Context(t), nil, func(counts []likesOf) { seen = append(seen, counts...) })
	require.EqualError(t, err, "no such table")
	require.Equal(t, []likesOf{{1, 2}}, seen)
}

// TestProbesAreSeenInOrder: a count of n shows the first n probes of its post, after those of earlier passes.
func TestProbesAreSeenInOrder(t *testing.T) {
	posts := probePosts(4)
	for partition, post := range posts {
		require.EqualValues(t, partition, schema.PartitionFor(post, 4))
	}
	l := &openLoop{latencyRun: &latencyRun{posts: posts[:2]}, before: map[uint64]int64{posts[0]: 10},
		begin: time.Now().Add(-time.Minute)}
	l.due = [][]time.Duration{{time.Second, 2 * time.Second}, {3 * time.Second}}
	p := &place{next: make([]int, 2)}
	see := func(first, second int64) { l.see(p, []likesOf{{posts[1], second}, {posts[0], first}}) }
	see(10, 0)
	require.Empty(t, p.seen)
	require.InDelta(t, 59, l.oldest([]*place{p}).Seconds(), 0.9)
	see(11, 1)
	require.Len(t, p.seen, 2)
	require.Equal(t, 3*time.Second, p.seen[0].due)
	require.InDelta(t, 57, p.seen[0].took.Seconds(), 0.9)
	require.InDelta(t, 58, l.oldest([]*place{p}).Seconds(), 0.9)
	see(12, 1)
	see(12, 1)
	require.Len(t, p.seen, 3)
	require.Negative(t, l.oldest([]*place{p}))
}

func TestRise(t *testing.T) {
	for name, c := range map[string]struct {
		latency func(at float64) float64 // in seconds, at a second after the warm-up
		want    float64                  // within 10 ms
	}{
		"steady":             {func(float64) float64 { return 0.2 }, 0},
		"1 % overload":       {func(at float64) float64 { return 0.1 + at/100 }, 600},
		"recovering":         {func(at float64) float64 { return 1 - at/100 }, -600},
		"a stall":            {func(at float64) float64 { return 0.1 + max(0, 2-math.Abs(at-30)) }, 0},
		"a stall at the end": {func(at float64) float64 { return 0.1 + max(0, at-57) }, 0},
		"slow warm-up":       {func(at float64) float64 { return 0.1 + max(0, 1-at) }, 0},
	} {
		var delays []delay
		for at := -3.0; at < 60; at += 0.01 {
			due := time.Duration((at + 3) * float64(time.Second))
			delays = append(delays, delay{due, time.Duration(c.latency(at) * float64(time.Second))})
		}
		require.InDelta(t, c.want, rise(delays, 3*time.Second, time.Minute), 10, name)
	}
	require.Zero(t, rise(nil, 0, time.Minute))
}

func TestProgress(t *testing.T) {
	for terminal, want := range map[bool]string{
		false: "done\n",
		true:  "\r\x1b[Khalf\r\x1b[Kdone\n",
	} {
		var out bytes.Buffer
		progress := NewProgress(&out, terminal)
		progress("half", true)
		progress("done", false)
		require.Equal(t, want, out.String())
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 999: "999", 1000: "1,000", 1_234_567.8: "1,234,568", 0.5: "0.50", 0.00123: "0.0012",
		12.345: "12.3", 123.456: "123", -1234: "-1,234", 999.7: "1,000",
	} {
		require.Equal(t, want, Number(v))
	}
}

func TestStat(t *testing.T) {
	require.Equal(t, Stat{}, StatOf(nil))
	require.Equal(t, Stat{2, 1, 9, 3}, StatOf([]float64{9, 1, 2}))
	require.Equal(t, Stat{3, 1, 9, 4}, StatOf([]float64{9, 1, 2, 4}))
}

func TestQuantiles(t *testing.T) {
	require.Equal(t, Quantiles{}, quantiles(nil))
	var took []time.Duration
	for i := range 1000 {
		took = append(took, time.Duration(1000-i)*time.Millisecond)
	}
	require.Equal(t, Quantiles{Probes: 1000, P50: 500, P99: 990, P999: 999, Max: 1000}, quantiles(took))
}

// TestStreamIsTheSameEverywhere pins the bytes of each seed.
func TestStreamIsTheSameEverywhere(t *testing.T) {
	want := map[string]string{
		"hot":            "d0d3d8a88d46f50f",
		"skewed-1000":    "2d46f005a40f7bc8",
		"skewed-1000000": "eb8702d96813d55d",
		"uniform":        "9b7337298fe30d5a",
	}
	have := map[string]string{}
	for _, shape := range Shapes() {
		s, err := NewStream(1, shape)
		require.NoError(t, err)
		hash := sha256.New()
		for range 20_000 {
			e, err := s.Next()
			require.NoError(t, err)
			hash.Write(schema.AppendEvent(nil, &e))
		}
		for post, n := range s.Liked() {
			hash.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, post), uint64(n)))
		}
		have[shape.Name] = hex.EncodeToString(hash.Sum(nil))[:16]
	}
	require.Equal(t, want, have, "the stream has changed: figures are not comparable with earlier ones")
}

// TestStreamCountsAreThoseOfARecount recounts from the last event of each pair.
func TestStreamCountsAreThoseOfARecount(t *testing.T) {
	const events = 50_000
	for _, shape := range append(Shapes(), Shape{Name: "few", Posts: 7, Partitions: 1}) {
		s, err := NewStream(7, shape)
		require.NoError(t, err)
		last, unlikes, before := map[[2]uint64]schema.Action{}, 0, int64(0)
		for i := range events {
			e, err := s.Next()
			require.NoError(t, err)
			require.NoError(t, e.Check())
			if e.PostID > uint64(shape.Posts) || e.TimeMs < before {
				t.Fatalf("shape %s: event %d is %+v: a post beyond the last one, or a time before %d",
					shape.Name, i, e, before)
			}
			before = e.TimeMs
			last[[2]uint64{e.PostID, e.UserID}] = e.Action
			if e.Action == schema.Unlike {
				unlikes++
			}
		}
		want, pairs := map[uint64]int64{}, len(last)
		for pair, action := range last {
			if action == schema.Like {
				want[pair[0]]++
			}
		}
		for post, n := range s.Liked() {
			require.Equal(t, n, s.Count(post))
		}
		require.Equal(t, want, maps.Collect(s.Liked()), "shape %s", shape.Name)
		require.Equal(t, pairs, s.Pairs(), "shape %s: no two pairs may have the same user", shape.Name)
		require.Equal(t, events, s.Events())
		require.InEpsilon(t, events*9/10, pairs, 0.02, "shape %s: new pairs", shape.Name)
		require.Greater(t, unlikes, events*unlikesPer100/100, "shape %s: unlikes, and repeats of some", shape.Name)
	}
}

// TestSkewedIsZipf: the first post has twice the likes of the second, and ten times those of the tenth.
func TestSkewedIsZipf(t *testing.T) {
	shape, err := ShapeNamed("skewed-1000")
	require.NoError(t, err)
	s, err := NewStream(1, shape)
	require.NoError(t, err)
	for range 300_000 {
		_, err := s.Next()
		require.NoError(t, err)
	}
	require.InEpsilon(t, 2, float64(s.Count(1))/float64(s.Count(2)), 0.1)
	require.InEpsilon(t, 10, float64(s.Count(1))/float64(s.Count(10)), 0.1)
	require.Zero(t, s.Count(0))
	require.Zero(t, s.Count(1001))
}

func TestShapeNamedSaysWhatThereIs(t *testing.T) {
	_, err := ShapeNamed("warm")
	require.ErrorContains(t, err, "skewed-1000")
	_, err = NewStream(1, Shape{Name: "empty"})
	require.ErrorContains(t, err, "empty: 0 posts")
}

func TestSustained(t *testing.T) {
	for i, l := range []LatencyLevel{{MySQL: Quantiles{P99: sustainedP99}, RiseMs: sustainedRise},
		{MySQL: Quantiles{P99: sustainedP99 + 1}}, {RiseMs: sustainedRise + 1}, {MySQL: Quantiles{Behind: true}}} {
		require.Equal(t, i == 0, l.sustained(), "%+v", l)
	}
}
