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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/bench/producer"
	"kudos/dev/testkit"
	"kudos/schema"
	"kudos/stream/kafka"
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
		level := LatencyLevel{Percent: 50, Kafka: Quantiles{P50: 1.5}, Reader: &Quantiles{P999: rate}}
		for _, run := range []Run{
			{Latency: &Latency{Levels: []LatencyLevel{level}}},
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
		`LATENCY +: 0 posts, all alike, 0 partitions, seed 0, 50 % of the drain rate`,
		`  visible in Kafka, p50 +1\.50 ms`,
		`  visible in the reader, p99\.9 +12,100 \(12,000–12,200\) ms`,
		`RECOVERY +without local state`,
		`  pairs +5,000 `,
		`  pairs per second +12,100 \(12,000–12,200\) `,
		`ACCEPTING +1,000 posts, 4 partitions`,
		`  single likes, highest rate +12,100 \(12,000–12,200\) likes/s`,
		`  batches of 1,000, p99\.9 at half the highest rate +7,000 ms`,
	} {
		require.Regexp(t, "(?m)^"+line+"$", text.String())
	}
}

// TestMissingAcceptedLikesAreReported: a producer that accepts likes which do not reach Kafka gets no figures.
func TestMissingAcceptedLikesAreReported(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, schema.TopicLikes))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	s := &Servers{Kafka: kafka.DefaultOptions(), DSN: "/", Log: slog.New(slog.DiscardHandler)}
	s.Kafka.Brokers = cluster.ListenAddrs()
	require.NoError(t, s.connect())
	t.Cleanup(s.disconnect)
	cl, err := s.Kafka.NewClient(s.Log, kgo.DefaultProduceTopic(schema.TopicLikes))
	require.NoError(t, err)
	defer cl.Close()
	records := make([]*kgo.Record, 52)
	for i := range records {
		records[i] = &kgo.Record{Value: []byte("a like")}
	}
	require.NoError(t, cl.ProduceSync(testkit.Context(t), records[:51]...).FirstErr())
	require.EqualError(t, s.haveAccepted(testkit.Context(t), accepted(1)),
		"the producer has accepted 52 likes, but likes has 51")
	require.NoError(t, cl.ProduceSync(testkit.Context(t), records[51]).FirstErr())
	require.NoError(t, s.haveAccepted(testkit.Context(t), accepted(1)))
}

// TestProbesAreQueriedAgain: a query that times out is repeated and its time counts; an error ends the run.
func TestProbesAreQueriedAgain(t *testing.T) {
	answers := []error{context.DeadlineExceeded, nil, errors.New("no such table")}
	watchOne := func() ([]time.Duration, error) {
		probes := make(chan probe, 1)
		probes <- probe{post: 1, sent: time.Now()}
		close(probes)
		return watch(testkit.Context(t), "a place", func(context.Context, []uint64) (map[uint64]bool, error) {
			err := answers[0]
			answers = answers[1:]
			return map[uint64]bool{1: err == nil}, err
		}, probes)
	}
	took, err := watchOne()
	require.NoError(t, err)
	require.Len(t, took, 1)
	_, err = watchOne()
	require.EqualError(t, err, "querying probes in a place: no such table")
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
