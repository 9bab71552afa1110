package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/bench"
	"kudos/bench/producer"
)

func render(t *testing.T, r *bench.Report) string {
	t.Helper()
	text, err := markdown(r)
	require.NoError(t, err)
	return text
}

// TestDocsMatchTheJSON: docs/benchmarks.md is generated from the JSON next to it.
func TestDocsMatchTheJSON(t *testing.T) {
	docs := filepath.Join("..", "..", "..", "docs")
	report, err := readReport(filepath.Join(docs, "benchmarks.json"))
	require.NoError(t, err)
	have, err := os.ReadFile(filepath.Join(docs, "benchmarks.md"))
	require.NoError(t, err)
	require.Equal(t, render(t, report), string(have),
		"fix: go run ./integration/cmd/bench -render docs/benchmarks.json -markdown docs/benchmarks.md")
}

// rounds returns a report of three rounds in which the machine becomes slower and slower.
func rounds() *bench.Report {
	r := &bench.Report{Version: bench.ReportVersion, Date: time.Unix(0, 0).UTC(), Contenders: map[string]string{}}
	shape, _ := bench.ShapeNamed("skewed-1000")
	for round, slower := range []float64{1, 2, 10} {
		add := func(contender string, rate float64) {
			d := &bench.Drain{
				Events: 1000, EventsPerSecond: rate / slower, Rows: 10, State: bench.State{Bytes: 24_000, Pairs: 1000},
				Used: map[string]bench.Usage{bench.ContenderProcess: {CPUSeconds: 0.5, PeakBytes: 100 << 20},
					"kafka": {CPUSeconds: 0.25}},
			}
			load := bench.Workload{Shape: shape, Events: 1000}
			r.Runs = append(r.Runs, bench.Run{Round: round + 1, Contender: contender, Load: load, Drain: d})
		}
		add("redis", []float64{100_000, 150_000, 90_000}[round])
		add(kudosName, 400_000)
	}
	return r
}

func ofLatency(r *bench.Report) *bench.Report {
	for i := range r.Runs {
		r.Runs[i].Drain, r.Runs[i].Latency = nil, &bench.Latency{}
	}
	return r
}

// TestReportOfParts: parts are merged if they come from the same machine and each measurement is from one commit.
func TestReportOfParts(t *testing.T) {
	first, second := rounds(), rounds()
	first.Runs, second.Runs = first.Runs[:2], second.Runs[2:]
	second.Versions = map[string]string{"Redis": "8"}
	first.Versions, first.Settings = map[string]string{"Go": "1.26"}, map[string]string{}
	require.NoError(t, addPart(first, second))
	require.Equal(t, rounds().Runs, first.Runs)
	require.Equal(t, map[string]string{"Go": "1.26", "Redis": "8"}, first.Versions)

	require.EqualError(t, addPart(first, second), "round 2, skewed-1000, redis is in more than one part")
	require.Len(t, first.Runs, 6, "nothing was added")
	require.NoError(t, addPart(first, ofLatency(rounds())), "the same round of another measurement")
	second = rounds()
	second.Machine.Cores++
	require.ErrorContains(t, addPart(first, second), "from the same machine")
}

func TestReportOfCommits(t *testing.T) {
	first, second := rounds(), rounds()
	first.Commit, first.Runs = "e0182e6", first.Runs[:2]
	second.Commit, second.Runs = "1234567", second.Runs[2:]
	require.EqualError(t, addPart(first, second),
		"draining is from commit e0182e6 in one part and from 1234567 in another: its rounds must have the same commit")
	require.Len(t, first.Runs, 2, "nothing was added")
	require.NoError(t, addPart(first, ofLatency(second)))
	require.Contains(t, render(t, first), "; commit e0182e6, latency: 1234567; rounds: 3.")
}

// TestRatiosAreWithinARound: 4, 2.67 and 4.44, although the medians are 75,000 and 200,000.
func TestRatiosAreWithinARound(t *testing.T) {
	r := rounds()
	p := page{r}
	s := p.ratio("skewed-1000", "redis")
	require.Equal(t, 3, s.Rounds)
	require.InDelta(t, 4, s.Median, 0.001)
	require.InDelta(t, 400.0/150, s.Least, 0.001)
	require.InDelta(t, 400.0/90, s.Most, 0.001)

	r.Runs[1].Drain, r.Runs[1].Error = nil, "the counts are wrong" // kudos in the first round
	require.Equal(t, 2, p.ratio("skewed-1000", "redis").Rounds, "a run without a result has no ratio")
	require.ErrorContains(t, r.Failed(), "round 1, skewed-1000, kudos failed: the counts are wrong")
	require.Zero(t, p.ratio("hot", "redis").Rounds)
	require.Zero(t, p.ratio("skewed-1000", "goka").Rounds)
}

func TestMarkdown(t *testing.T) {
	r := rounds()
	text := render(t, r)
	for _, line := range []string{
		"|skewed-1000: kudos / redis|≥ 2×|4× (2.67–4.44)|yes|",
		"|skewed-1000: CPU of the processor per million events|≤ 2 s|500 s|**no**|",
		"|hot: kudos / redis|≥ 1.50×||not measured|",
		"|kudos|1,000|200,000 (40,000–400,000)||500|750|100|0.01|24|",
		"|redis|1,000|75,000 (9,000–100,000)|4× (2.67–4.44)|500|750|100|0.01|24|",
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
	require.Less(t, strings.Index(text, "\n|kudos|1,000"), strings.Index(text, "\n|redis|1,000"), "kudos comes first")
	require.NotContains(t, text, "without a result")

	r.Runs[0].Drain, r.Runs[0].Error = nil, "it fell over\nand more"
	require.Contains(t, render(t, r),
		"## Runs without a result\n\n```\nround 1, skewed-1000, redis failed: it fell over\n```")
}

func TestAccepting(t *testing.T) {
	r := rounds()
	load := bench.Workload{Shape: bench.Shape{Name: "accepting", Posts: 1000, Partitions: 4}}
	for round, p99 := range []float64{99, 101, 90} {
		of := func(likes float64, connections int) producer.Endpoint {
			return producer.Endpoint{
				LikesPerRequest: int(likes), Connections: connections,
				Capacity: producer.Step{LikesPerSecond: (12_000 + 100*float64(round)) * likes},
				Half:     producer.Step{P50Ms: 2, P99Ms: p99 * likes, P999Ms: 7000},
			}
		}
		r.Runs = append(r.Runs, bench.Run{Round: round + 1, Contender: kudosName, Load: load,
			Producer: &producer.Result{LatencyLimitMs: 250, Single: of(1, 256), Batch: of(1000, 32)}})
	}
	text := render(t, r)
	for _, line := range []string{
		"Likes over HTTP to one producer, of 1,000 posts in 4 partitions, open loop; each connection has one",
		"all are accepted and p99 is 250 ms at most (to within 9 %).",
		"| |connections|highest rate, likes/s|at half of it, p50|p99|p99.9|",
		"|single likes|256|12,100 (12,000–12,200)|2|99 (90–101)|7,000|",
		"|batches of 1,000|32|12,100,000 (12,000,000–12,200,000)|2|99,000 (90,000–101,000)|7,000|",
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
}

// TestLatency: levels of both plans, of a peer that does not keep up, of another broker, and of an earlier report.
func TestLatency(t *testing.T) {
	r := &bench.Report{Version: bench.ReportVersion}
	q := func(p99 float64) *bench.Quantiles { return &bench.Quantiles{Probes: 100, P50: 5, P99: p99} }
	for round, slower := range []float64{1, 2, 3} {
		add := func(contender, broker string, l bench.Latency) {
			r.Runs = append(r.Runs, bench.Run{Round: round + 1, Contender: contender, Broker: broker, Latency: &l,
				Processes: []string{"kafka", "sender", contender}, LoadAverage: slower})
		}
		at := func(rate, percent int) bench.LatencyLevel {
			return bench.LatencyLevel{Rate: rate, Percent: percent, EventsPerSecond: 1000, Kafka: *q(3),
				MySQL: *q(20 * slower), Reader: q(15),
				Live: q(float64(percent) + 150*slower), Seconds: 10, Used: map[string]bench.Usage{
					bench.ContenderProcess: {CPUSeconds: slower}, bench.SenderProcess: {CPUSeconds: 0.5}}}
		}
		fixed := bench.Latency{Levels: []bench.LatencyLevel{at(1000, 0)}}
		add(kudosName, "default", bench.Latency{DrainEventsPerSecond: 400_000, Levels: []bench.LatencyLevel{at(0, 50)},
			Sustainable: &bench.Sustainable{EventsPerSecond: 100_000 * slower, MySQL: *q(900), Resolution: 1.5}})
		add(kudosName, "tuned", fixed)
		add(kudosName, "", fixed)
		add("goka", "", bench.Latency{Levels: []bench.LatencyLevel{{Rate: 1000, MySQL: bench.Quantiles{Behind: true}}}})
		add("sql", "", bench.Latency{Levels: []bench.LatencyLevel{at(0, 0)}}) // of an earlier report
	}
	text := render(t, r)
	for _, line := range []string{
		"|publish to MySQL, p99 at 1,000/s on one post|≤ 40 ms|40 ms (20–60)|yes|",
		"|publish to MySQL, p99 at 50 % of the sustainable rate|≤ 100 ms|40 ms (20–60)|yes|",
		"|publish to live stream, p99 at the slowest load: 50 % of the sustainable rate|≤ 300 ms|" +
			"350 ms (200–500)|**no**|",
		"|sustainable rate / drain rate|≥ 40 %|50 % (25–75)|yes|",
		"|CPU of the processor at 1,000/s on one post|≤ 5 % of a core|20 % of a core (10–30)|**no**|",
		"|kudos|200,000 (100,000–300,000)|400,000|50 (25–75)|900|50|",
		"|50 %|kudos|1,000|5|3|5|40 (20–60)|5|15|5|350 (200–500)|||20 (10–30)|5|",
		"|1,000/s|kudos|1,000|5|3|5|40 (20–60)|5|15|5|300 (150–450)|||20 (10–30)|5|",
		"|1,000/s|kudos, tuned broker|1,000|5|3|5|40 (20–60)|5|15|5|300 (150–450)|" +
			"||20 (10–30)|5|",
		"|1,000/s|goka|0|||∞|∞|||||||||",
		"All on one machine (goka, kafka, kudos, sender, sql),\nload average at the start of a run: 2 (1–3).",
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
	require.NotContains(t, text, "|sql|1,000|")
}

// TestMarkdownIsTheSameEachTime: floating-point addition is not associative, so the order could change the last digit.
func TestMarkdownIsTheSameEachTime(t *testing.T) {
	d := &bench.Drain{Events: 1e6, Used: map[string]bench.Usage{
		bench.ContenderProcess: {CPUSeconds: 0.1}, "kafka": {CPUSeconds: 0.2}, "mariadb": {CPUSeconds: 0.3},
		"redis": {CPUSeconds: 1e16},
	}}
	want := allCPUPerMillion(d)
	for range 200 {
		require.Equal(t, want, allCPUPerMillion(d))
	}
}

func TestReportInAFile(t *testing.T) {
	s := settings{json: filepath.Join(t.TempDir(), "report.json")}
	r := rounds()
	require.NoError(t, s.write(r))
	back, err := readReport(s.json)
	require.NoError(t, err)
	require.Equal(t, r, back)
	r.Version++
	require.NoError(t, s.write(r))
	_, err = readReport(s.json)
	require.ErrorContains(t, err, "measure again")
}
