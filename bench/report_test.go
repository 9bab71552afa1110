package bench

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/bench/producer"
	"kudos/schema"
	"kudos/stream/kafka"
)

// TestDocsAreOfTheJSON: docs/benchmarks.md is what the JSON beside it gives.
func TestDocsAreOfTheJSON(t *testing.T) {
	docs := filepath.Join("..", "docs")
	report, err := ReadReport(filepath.Join(docs, "benchmarks.json"))
	require.NoError(t, err)
	have, err := os.ReadFile(filepath.Join(docs, "benchmarks.md"))
	require.NoError(t, err)
	var want strings.Builder
	require.NoError(t, report.WriteMarkdown(&want))
	require.Equal(t, want.String(), string(have),
		"mend: go run ./integration/cmd/bench -render docs/benchmarks.json -markdown docs/benchmarks.md")
}

// rounds is a report of three rounds in which the machine becomes slower and slower.
func rounds() *Report {
	r := &Report{Version: reportVersion, Date: time.Unix(0, 0).UTC(), Contenders: map[string]string{}}
	shape, _ := ShapeNamed("skewed-1000")
	for round, slower := range []float64{1, 2, 10} {
		add := func(contender string, rate float64) {
			r.Runs = append(r.Runs, Run{Round: round + 1, Contender: contender, Load: Workload{Shape: shape, Events: 1000}, Drain: &Drain{
				Events: 1000, EventsPerSecond: rate / slower, Rows: 10, State: State{Bytes: 24_000, Pairs: 1000},
				Used: map[string]Usage{contenderName: {CPUSeconds: 0.5, PeakBytes: 100 << 20}, "kafka": {CPUSeconds: 0.25}},
			}})
		}
		add("redis", []float64{100_000, 150_000, 90_000}[round])
		add(kudosName, 400_000)
	}
	return r
}

// TestReportOfParts: what was measured at different times is one report, if it is of the same machine, and each
// measurement of one commit.
func TestReportOfParts(t *testing.T) {
	first, second := rounds(), rounds()
	first.Runs, second.Runs = first.Runs[:2], second.Runs[2:]
	second.Versions = map[string]string{"Redis": "8"}
	first.Versions = map[string]string{"Go": "1.26"}
	first.Settings = map[string]string{}
	require.NoError(t, first.Add(second))
	require.Equal(t, rounds().Runs, first.Runs)
	require.Equal(t, map[string]string{"Go": "1.26", "Redis": "8"}, first.Versions)

	require.EqualError(t, first.Add(second), "round 2, skewed-1000, redis is in more than one part")
	require.Len(t, first.Runs, 6, "nothing of it was taken")
	latency := rounds()
	for i := range latency.Runs {
		latency.Runs[i].Drain, latency.Runs[i].Latency = nil, &Latency{}
	}
	require.NoError(t, first.Add(latency), "the same round of something else")
	second = rounds()
	second.Machine.Cores++
	require.ErrorContains(t, first.Add(second), "of the same machine")
}

func TestReportOfCommits(t *testing.T) {
	first, second := rounds(), rounds()
	first.Commit, first.Runs = "e0182e6", first.Runs[:2]
	second.Commit, second.Runs = "1234567", second.Runs[2:]
	require.EqualError(t, first.Add(second), "draining is of commit e0182e6 in one part and of 1234567 in another: its rounds are of the same program")
	require.Len(t, first.Runs, 2, "nothing of it was taken")
	for i := range second.Runs {
		second.Runs[i].Drain, second.Runs[i].Latency = nil, &Latency{}
	}
	require.NoError(t, first.Add(second))
	var text strings.Builder
	require.NoError(t, first.WriteMarkdown(&text))
	require.Contains(t, text.String(), "; commit e0182e6, from publishing to visible: 1234567; rounds: 3.")
}

// TestRatiosAreWithinARound: 4, 2.67 and 4.44, though the medians are 75,000 and 200,000.
func TestRatiosAreWithinARound(t *testing.T) {
	r := rounds()
	s := r.ratio("skewed-1000", "redis")
	require.Equal(t, 3, s.rounds)
	require.InDelta(t, 4, s.median, 0.001)
	require.InDelta(t, 400.0/150, s.least, 0.001)
	require.InDelta(t, 400.0/90, s.most, 0.001)

	r.Runs[1].Drain, r.Runs[1].Error = nil, "the counts are wrong" // kudos in the first round
	require.Equal(t, 2, r.ratio("skewed-1000", "redis").rounds, "a run without a result has no ratio")
	require.ErrorContains(t, r.Failed(), "round 1, skewed-1000, kudos failed: the counts are wrong")
	require.Zero(t, r.ratio("hot", "redis").rounds)
	require.Zero(t, r.ratio("skewed-1000", "goka").rounds)
}

func TestMarkdown(t *testing.T) {
	var text strings.Builder
	r := rounds()
	require.NoError(t, r.WriteMarkdown(&text))
	for _, line := range []string{
		"| skewed-1000: kudos by redis | ≥ 3× | 4× (2.67–4.44) | yes |",
		"| skewed-1000: kudos by goka | ≥ 8× |  | not measured |",
		"| kudos | 1,000 | 200,000 (40,000–400,000) |  | 500 | 750 | 100 | 0.01 | 24 |",
		"| redis | 1,000 | 75,000 (9,000–100,000) | 4× (2.67–4.44) | 500 | 750 | 100 | 0.01 | 24 |",
	} {
		require.Contains(t, text.String(), "\n"+line+"\n")
	}
	require.Less(t, strings.Index(text.String(), "\n| kudos | 1,000"), strings.Index(text.String(), "\n| redis | 1,000"), "kudos comes first")
	require.NotContains(t, text.String(), "without a result")

	r.Runs[0].Drain, r.Runs[0].Error = nil, "it fell over\nand more"
	text.Reset()
	require.NoError(t, r.WriteMarkdown(&text))
	require.Contains(t, text.String(), "## Runs without a result\n\n```\nround 1, skewed-1000, redis failed: it fell over\n```")
}

// accepted is what a producer came to whose times at half of the capacity are so.
func accepted(rate, p99 float64) *producer.Result {
	of := func(likes, connections int) producer.Endpoint {
		step := producer.Step{LikesPerSecond: rate * float64(likes), Accepted: 5}
		return producer.Endpoint{
			LikesPerRequest: likes, Connections: connections, Capacity: step, Steps: []producer.Step{{Accepted: 1}, step},
			Half: producer.Step{Accepted: 20, P50Ms: 2, P99Ms: p99 * float64(likes), P999Ms: 7000},
		}
	}
	return &producer.Result{LatencyLimitMs: 250, Single: of(1, 256), Batch: of(1000, 32)}
}

func TestAccepting(t *testing.T) {
	r := rounds()
	for round, p99 := range []float64{99, 101, 90} {
		r.Runs = append(r.Runs, Run{Round: round + 1, Contender: kudosName, Load: DefaultProducerPlan().load(), Producer: accepted(12_000+100*float64(round), p99)})
	}
	var text, table strings.Builder
	require.NoError(t, r.WriteMarkdown(&text))
	for _, line := range []string{
		"| like accepted, p99 at 50 % of capacity | ≤ 100 ms | 99 ms (90–101) | yes |",
		"Likes by HTTP to one producer, of 1,000 posts in 4 partitions; the sender takes its share of the same machine. A connection has one request in hand. Requests are due",
		"at which all are accepted and p99 is 250 ms at most, to 9 %. Milliseconds.",
		"| | connections | highest rate, likes/s | at half of it, p50 | p99 | p99.9 |",
		"| single likes | 256 | 12,100 (12,000–12,200) | 2 | 99 (90–101) | 7,000 |",
		"| batches of 1,000 | 32 | 12,100,000 (12,000,000–12,200,000) | 2 | 99,000 (90,000–101,000) | 7,000 |",
	} {
		require.Contains(t, text.String(), "\n"+line+"\n")
	}
	require.NoError(t, r.WriteText(&table, kudosName))
	require.Regexp(t, `(?m)^ACCEPTING +1,000 posts, 4 partitions$`, table.String())
	require.Regexp(t, `(?m)^  single likes, highest rate +12,100 \(12,000–12,200\) likes/s$`, table.String())
	require.Regexp(t, `(?m)^  batches of 1,000, p99\.9 at half of it +7,000 ms$`, table.String())

	r.Runs[len(r.Runs)-3].Producer.Single.Half.P99Ms = 102
	text.Reset()
	require.NoError(t, r.WriteMarkdown(&text))
	require.Contains(t, text.String(), "| ≤ 100 ms | 101 ms (90–102) | **no** |")
}

// TestAcceptedLikesMustBeThere: a producer that accepts what Kafka does not get has no figures.
func TestAcceptedLikesMustBeThere(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, schema.TopicLikes))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	s := &Servers{Kafka: kafka.DefaultOptions(), Log: slog.New(slog.DiscardHandler)}
	s.Kafka.Brokers = cluster.ListenAddrs()
	cl, err := s.client(kgo.DefaultProduceTopic(schema.TopicLikes))
	require.NoError(t, err)
	defer cl.Close()
	records := make([]*kgo.Record, 52)
	for i := range records {
		records[i] = &kgo.Record{Value: []byte("a like")}
	}
	r, result := &run{servers: s}, accepted(1, 1)
	require.NoError(t, cl.ProduceSync(within(t), records[:51]...).FirstErr())
	require.EqualError(t, r.haveAccepted(within(t), result), "the producer has accepted 52 likes, but likes has 51")
	require.NoError(t, cl.ProduceSync(within(t), records[51]).FirstErr())
	require.NoError(t, r.haveAccepted(within(t), result))
}

// TestMarkdownIsTheSameEachTime: sums are not associative, and 0.1 + 0.2 + 0.3 in another order has another last digit.
func TestMarkdownIsTheSameEachTime(t *testing.T) {
	d := &Drain{Events: 1e6, Used: map[string]Usage{contenderName: {CPUSeconds: 0.1}, "kafka": {CPUSeconds: 0.2}, "mariadb": {CPUSeconds: 0.3}, "redis": {CPUSeconds: 1e16}}}
	want, ok := cpuPerMillion(true)(d)
	require.True(t, ok)
	for range 200 {
		have, _ := cpuPerMillion(true)(d)
		require.Equal(t, want, have)
	}
}

func TestReportInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	r := rounds()
	require.NoError(t, r.Write(path))
	back, err := ReadReport(path)
	require.NoError(t, err)
	require.Equal(t, r, back)
	r.Version++
	require.NoError(t, r.Write(path))
	_, err = ReadReport(path)
	require.ErrorContains(t, err, "measure again")
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 999: "999", 1000: "1,000", 1_234_567.8: "1,234,568", 0.5: "0.50", 0.00123: "0.0012", 12.345: "12.3", 123.456: "123", -1234: "-1,234", 999.7: "1,000",
	} {
		require.Equal(t, want, number(v))
	}
}

func TestStat(t *testing.T) {
	require.Equal(t, stat{}, statOf(nil))
	require.Equal(t, stat{2, 1, 9, 3}, statOf([]float64{9, 1, 2}))
	require.Equal(t, stat{3, 1, 9, 4}, statOf([]float64{9, 1, 2, 4}))
}

func TestQuantiles(t *testing.T) {
	require.Equal(t, Quantiles{}, quantiles(nil))
	var took []time.Duration
	for i := range 1000 {
		took = append(took, time.Duration(1000-i)*time.Millisecond)
	}
	require.Equal(t, Quantiles{Probes: 1000, P50: 500, P99: 990, P999: 999, Max: 1000}, quantiles(took))
}
