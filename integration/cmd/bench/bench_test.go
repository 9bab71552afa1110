package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/bench"
	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/stream/kafka"
)

// shared are the servers of the tests here.
var shared = stack.NewShared(stack.KafkaOptions{}, stack.DatabaseOptions{})

func TestMain(m *testing.M) {
	programFlags = stack.ForTests()
	os.Exit(shared.Main(m))
}

// sharedServers is a site on servers that run already: nothing is started for a run but Redis.
type sharedServers struct {
	t     *testing.T
	redis *stack.Redis
}

func (s *sharedServers) Open(ctx context.Context, redis bool) (*bench.Servers, error) {
	broker, mariadb := shared.Kafka(s.t), shared.MariaDB(s.t)
	if err := broker.Reset(ctx); err != nil {
		return nil, err
	}
	options := kafka.DefaultOptions()
	options.Brokers = broker.Brokers()
	b := &bench.Servers{
		Kafka: options, DSN: mariadb.NewDatabase(s.t), Replication: 1, Log: slog.New(slog.DiscardHandler),
		Processes: map[string]int{"kafka": broker.Node(0).PID(), "mariadb": mariadb.PID()},
	}
	if redis {
		var err error
		if s.redis, err = stack.StartRedis(ctx, stack.RedisOptions{AppendOnly: true}); err != nil {
			return nil, err
		}
		b.Redis, b.Processes["redis"] = s.redis.Address(), s.redis.PID()
	}
	return b, nil
}

func (s *sharedServers) Close() error {
	if s.redis == nil {
		return nil
	}
	r := s.redis
	s.redis = nil
	return r.Close()
}

// TestContendersCountExactly: every contender whose source is here ends with the same counts. (A run with wrong counts
// is one without a result.)
func TestContendersCountExactly(t *testing.T) {
	tier.Verify(t)
	stack.Require(t, stack.NeedKafka, stack.NeedMariaDB)
	root, err := projectRoot(t.Context())
	require.NoError(t, err)
	profiles := t.TempDir()
	contenders, err := build(t.Context(), root, t.TempDir(), nil, profiles)
	require.NoError(t, err)
	for _, c := range contenders {
		if c.NeedsRedis() {
			stack.Require(t, stack.NeedRedis)
		}
	}
	shape, err := bench.ShapeNamed("skewed-1000")
	require.NoError(t, err)
	hot, err := bench.ShapeNamed("hot")
	require.NoError(t, err)
	plan := &bench.Plan{
		Site: &sharedServers{t: t}, Contenders: contenders, Rounds: 1, Dir: t.TempDir(),
		Drains:   []bench.Workload{{Seed: 1, Shape: shape, Events: 20_000}, {Seed: 2, Shape: hot, Events: 5_000}},
		EventsOf: map[string]int{"sql": 1_000},
		Progress: func(line string, again bool) {
			if !again {
				t.Log(line)
			}
		},
		Each: func(*bench.Report) error { return nil },
	}
	report := bench.NewReport("", contenders...)
	require.NoError(t, plan.Run(t.Context(), report))
	require.NoError(t, report.Failed())
	require.Len(t, report.Runs, 2*len(contenders))
	for _, run := range report.Runs {
		d := run.Drain
		require.NotNil(t, d, "%s", run.Contender)
		require.EqualValues(t, run.Load.Events, d.Events)
		require.Positive(t, d.EventsPerSecond)
		require.Positive(t, d.State.Bytes)
		require.Contains(t, d.Used, "contender")
		require.Contains(t, d.Used, "kafka")
		require.Positive(t, d.Used["contender"].PeakBytes)
	}
	made, err := filepath.Glob(filepath.Join(profiles, "*.pprof"))
	require.NoError(t, err)
	require.Len(t, made, 2, "of each drain of kudos")
	for _, path := range made {
		profile, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "\x1f\x8b", string(profile[:2]), "a gzip file, as profiles are")
	}
}

// TestKudosLatencyRecoveryAndProducer measures all three, with few events.
func TestKudosLatencyRecoveryAndProducer(t *testing.T) {
	tier.Verify(t)
	stack.Require(t, stack.NeedKafka, stack.NeedMariaDB)
	shape, err := bench.ShapeNamed("skewed-1000")
	require.NoError(t, err)
	load := bench.Workload{Seed: 3, Shape: shape, Events: 10_000}
	kudos := &bench.Kudos{Program: bench.Command{Path: shared.Kudos(t)}}
	plan := &bench.Plan{
		Site: &sharedServers{t: t}, Contenders: []bench.Contender{kudos}, Rounds: 1, Dir: t.TempDir(),
		Latency:  &bench.LatencyPlan{Load: load, Percents: []int{10, 20}, Warmup: 200 * time.Millisecond, Measure: time.Second, Probes: 100},
		Recovery: &bench.RecoveryPlan{Load: load},
		Producer: bench.DefaultProducerPlan(),
		Progress: func(string, bool) {},
		Each:     func(*bench.Report) error { return nil },
	}
	plan.Producer.HoldEach(100 * time.Millisecond)
	report := bench.NewReport("", kudos)
	require.NoError(t, plan.Run(t.Context(), report))
	require.NoError(t, report.Failed())
	require.Len(t, report.Runs, 3)
	latency := report.Runs[0].Latency
	require.Len(t, latency.Levels, 2)
	for i, level := range latency.Levels {
		require.Equal(t, plan.Latency.Percents[i], level.Percent)
		require.Positive(t, level.MySQL.Probes)
		require.Equal(t, level.MySQL.Probes, level.Reader.Probes, "the same once more")
		require.Positive(t, level.MySQL.P50)
		require.LessOrEqual(t, level.MySQL.P50, level.MySQL.Max)
	}
	recovery := report.Runs[1].Recovery
	require.Equal(t, recovery.Drained.State.Pairs, recovery.Pairs)
	require.Greater(t, recovery.Records, recovery.Pairs)
	require.Positive(t, recovery.EntriesPerSecond)
	require.Positive(t, recovery.RSSBytes)
	accepting := report.Runs[2].Producer
	require.Positive(t, accepting.Single.Capacity.LikesPerSecond)
	require.Positive(t, accepting.Single.Half.P99Ms)
	require.Equal(t, plan.Producer.Options.BatchLines, accepting.Batch.LikesPerRequest)
	require.Greater(t, accepting.Batch.Capacity.LikesPerSecond, accepting.Single.Capacity.LikesPerSecond)
}

// TestCommandMeasuresAndReports is the whole command, on servers that it starts itself.
func TestCommandMeasuresAndReports(t *testing.T) {
	tier.Verify(t)
	stack.Require(t, stack.NeedKafka, stack.NeedMariaDB)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	out, err := os.Create(filepath.Join(dir, "out"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, out.Close()) })
	s := settings{
		contenders: kudosName, out: out, shapes: "skewed-1000", measure: "drain", events: 3_000, rounds: 1, seed: 1,
		dir: dir, json: filepath.Join(dir, "report.json"), markdown: filepath.Join(dir, "report.md"),
	}
	if os.Geteuid() == 0 {
		s.dir = enterable(t) // the database runs under another account
	}
	require.NoError(t, s.run(t.Context(), ""))
	report, err := bench.ReadReport(s.json)
	require.NoError(t, err)
	require.Len(t, report.Runs, 1)
	d := report.Runs[0].Drain
	require.NotNil(t, d)
	require.Positive(t, d.Rows, "userstat is on")
	require.Contains(t, report.Versions, "Kafka")
	require.Contains(t, report.Versions["database"], "MariaDB")
	text, err := os.ReadFile(s.markdown)
	require.NoError(t, err)
	require.Contains(t, string(text), "| kudos | 3,000 |")
	printed, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	require.Contains(t, string(printed), string(text), "it ends with the same")
	left, err := filepath.Glob(filepath.Join(s.dir, "kudos-*"))
	require.NoError(t, err)
	for _, path := range left {
		require.False(t, strings.Contains(path, "mariadb") || strings.Contains(path, "kafka"), "%s is left of the run", path)
	}
}

// enterable is a folder that every account can enter, which a test's own is not.
func enterable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kudos-bench-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

func TestPlanOfTheProducer(t *testing.T) {
	s := settings{measure: "producer", rounds: 1, out: os.Stdout}
	plan, err := s.plan()
	require.NoError(t, err)
	require.Equal(t, bench.DefaultProducerPlan(), plan.Producer)
	s.quick = true
	plan, err = s.plan()
	require.NoError(t, err)
	require.Less(t, plan.Producer.Options.StepFor, bench.DefaultProducerPlan().Options.StepFor)
	require.Nil(t, plan.Latency)
}

func TestUnknownNames(t *testing.T) {
	_, err := build(t.Context(), t.TempDir(), t.TempDir(), []string{"memcached"}, "")
	require.ErrorContains(t, err, `there is no contender "memcached"; there are kudos, redis, goka, streams, sql`)
	s := settings{measure: "throughput", rounds: 1, out: os.Stdout}
	_, err = s.plan()
	require.ErrorContains(t, err, `nothing "throughput" to measure`)
	s = settings{measure: "drain", shapes: "warm", rounds: 1, out: os.Stdout}
	_, err = s.plan()
	require.ErrorContains(t, err, `no shape "warm"`)
}

func TestJavaOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "java.options")
	words, err := javaOptions(path)
	require.NoError(t, err)
	require.Empty(t, words)
	require.NoError(t, os.WriteFile(path, []byte("# why\n-Xmx1g -XX:+UseParallelGC # two cores\n\n-Da=b\n"), 0o644))
	words, err = javaOptions(path)
	require.NoError(t, err)
	require.Equal(t, []string{"-Xmx1g", "-XX:+UseParallelGC", "-Da=b"}, words)
}
