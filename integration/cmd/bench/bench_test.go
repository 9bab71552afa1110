package main

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/bench"
	"kudos/dev/testkit"
	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

var shared = stack.NewShared(stack.KafkaOptions{}, stack.DatabaseOptions{})

func TestMain(m *testing.M) {
	programFlags = stack.ForTests()
	os.Exit(shared.Main(m))
}

// sharedServers is a site on running servers: each run starts only Redis.
type sharedServers struct {
	t       *testing.T
	brokers [2]*stack.Kafka // alternating: the group of a killed process exists until its session expires
	opened  int
	redis   *stack.Redis
}

func (s *sharedServers) Open(ctx context.Context, c bench.Contender, _ string) (*bench.Servers, error) {
	at := &s.brokers[s.opened%len(s.brokers)]
	if *at == nil {
		*at = shared.Kafka(s.t)
	}
	s.opened++
	if err := (*at).Reset(ctx); err != nil {
		return nil, err
	}
	mariadb := shared.MariaDB(s.t)
	b := newServers(*at, mariadb, mariadb.NewDatabase(s.t), slog.New(slog.DiscardHandler))
	var err error
	if p, ok := c.(*peer); ok && p.needsRedis {
		s.redis, err = p.startRedis(ctx, b, "")
	}
	return b, err
}

func (s *sharedServers) Close() (err error) {
	if s.redis != nil {
		err = s.redis.Close()
	}
	s.redis = nil
	return err
}

// TestContendersCountExactly: every contender whose source is present ends with the same counts, or has no result.
func TestContendersCountExactly(t *testing.T) {
	tier.Turn(0)(t)
	stack.Require(t, stack.NeedKafka, stack.NeedMariaDB)
	root, err := projectRoot(t.Context())
	require.NoError(t, err)
	profiles := t.TempDir()
	contenders, err := build(t.Context(), root, t.TempDir(), nil, profiles)
	require.NoError(t, err)
	for _, c := range contenders {
		if p, ok := c.(*peer); ok && p.needsRedis {
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
	require.Len(t, made, 2, "one per drain of kudos")
	for _, path := range made {
		profile, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "\x1f\x8b", string(profile[:2]), "profiles are gzip files")
	}
}

type likes struct {
	t      *testing.T
	stream *bench.Stream
	client *kgo.Client
	db     *sqlx.DB
}

func newLikes(t *testing.T, s *bench.Servers) *likes {
	t.Helper()
	l := &likes{t: t}
	var err error
	l.stream, err = bench.NewStream(1, bench.Shape{Name: "few", Posts: 200, Skewed: true})
	require.NoError(t, err)
	l.client, err = s.Kafka.NewClient(s.Log, kgo.DefaultProduceTopic(schema.TopicLikes),
		kgo.ProducerBatchMaxBytes(schema.BatchMaxBytes(schema.TopicLikes)))
	require.NoError(t, err)
	t.Cleanup(l.client.Close)
	l.db, err = sqlx.Open("mysql", s.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.db.Close()) })
	return l
}

func (l *likes) publish(n int) {
	l.t.Helper()
	var records []*kgo.Record
	for range n {
		e, err := l.stream.Next()
		require.NoError(l.t, err)
		key, value := schema.AppendPostKey(nil, e.PostID), schema.AppendEvent(nil, &e)
		records = append(records, &kgo.Record{Key: key, Value: value})
	}
	require.NoError(l.t, l.client.ProduceSync(l.t.Context(), records...).FirstErr())
}

// counts returns the counts in MySQL, without posts that nobody likes.
func (l *likes) counts() map[uint64]int64 {
	l.t.Helper()
	var rows []struct {
		Post  uint64
		Likes int64
	}
	require.NoError(l.t, l.db.SelectContext(l.t.Context(), &rows,
		"SELECT post_id AS post, count AS likes FROM like_count WHERE count <> 0"))
	counts := map[uint64]int64{}
	for _, row := range rows {
		counts[row.Post] = row.Likes
	}
	return counts
}

// TestPeersCountExactly: the topic has a backlog when a peer starts, more events arrive while it runs, and it restarts
// on its state; in the end like_count must equal the last action of every user.
func TestPeersCountExactly(t *testing.T) {
	tier.Turn(0)(t)
	stack.Require(t, stack.NeedKafka, stack.NeedMariaDB)
	root, err := projectRoot(t.Context())
	require.NoError(t, err)
	for name, events := range map[string]int{"redis": 20_000, "goka": 4_000, "sql": 2_000} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Within(t, 4*time.Minute)
			contenders, err := build(ctx, root, t.TempDir(), []string{name}, "")
			require.NoError(t, err)
			peer := contenders[0].(*peer)
			if peer.needsRedis {
				stack.Require(t, stack.NeedRedis)
			}
			site := &sharedServers{t: t}
			s, err := site.Open(ctx, peer, "")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, site.Close()) })
			require.NoError(t, peer.Prepare(ctx, s, 4))
			likes, dir := newLikes(t, s), t.TempDir()
			start := func() bench.Running {
				running, err := peer.Start(s, dir)
				require.NoError(t, err)
				t.Cleanup(running.Kill)
				return running
			}
			stop := func(running bench.Running) bench.State {
				begin := time.Now()
				state, err := running.Stop()
				require.NoError(t, err)
				require.Less(t, time.Since(begin), 10*time.Second, "exit after SIGTERM")
				require.Equal(t, maps.Collect(likes.stream.Liked()), likes.counts())
				return state
			}

			likes.publish(events)
			running := start()
			first, err := running.FirstPoll(ctx)
			require.NoError(t, err)
			last, err := running.Counted(ctx, int64(events))
			require.NoError(t, err)
			require.False(t, last.Before(first))
			require.Equal(t, maps.Collect(likes.stream.Liked()), likes.counts())

			// All partitions get some of these; the peer must continue at its position.
			likes.publish(500)
			_, err = running.Counted(ctx, int64(events+500))
			require.NoError(t, err)
			state := stop(running)
			require.Positive(t, state.Bytes)
			pairs := []int64{likes.stream.Likes(), int64(likes.stream.Pairs())}
			require.Contains(t, pairs, state.Pairs, "pairs: current likes, or all known pairs")

			likes.publish(500)
			running = start()
			exact := func() bool { return maps.Equal(maps.Collect(likes.stream.Liked()), likes.counts()) }
			require.Eventually(t, exact, time.Minute, 20*time.Millisecond)
			stop(running)
		})
	}
}

// TestCommandMeasuresAndReports runs the whole command, on servers that it starts itself.
func TestCommandMeasuresAndReports(t *testing.T) {
	tier.Turn(0)(t)
	stack.Require(t, stack.NeedKafka, stack.NeedMariaDB)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	out, err := os.Create(filepath.Join(dir, "out"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, out.Close()) })
	s := settings{contenders: kudosName, out: out, shapes: "skewed-1000", measure: "drain", events: 3_000, rounds: 1,
		seed: 1, dir: dir, json: filepath.Join(dir, "report.json"), markdown: filepath.Join(dir, "report.md")}
	if os.Geteuid() == 0 { // the database's account cannot enter the directory of a test
		s.dir, err = os.MkdirTemp("", "kudos-bench-test-")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(s.dir)) })
		require.NoError(t, os.Chmod(s.dir, 0o755))
	}
	require.NoError(t, s.run(t.Context(), ""))
	report, err := readReport(s.json)
	require.NoError(t, err)
	require.Len(t, report.Runs, 1)
	d := report.Runs[0].Drain
	require.NotNil(t, d)
	require.Positive(t, d.Rows, "userstat must be on")
	require.Contains(t, report.Versions, "Kafka")
	require.Contains(t, report.Versions["database"], "MariaDB")
	text, err := os.ReadFile(s.markdown)
	require.NoError(t, err)
	require.Contains(t, string(text), "|kudos|3,000|")
	printed, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	require.Contains(t, string(printed), string(text), "the output ends with the report")
	left, err := filepath.Glob(filepath.Join(s.dir, "kudos-*"))
	require.NoError(t, err)
	for _, path := range left {
		require.False(t, strings.Contains(path, "mariadb") || strings.Contains(path, "kafka"), "%s was not deleted",
			path)
	}
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

func TestPlanOfLatency(t *testing.T) {
	s := settings{measure: "sustainable,latency", rounds: 1, out: os.Stdout, reader: true, brokers: "default,tuned"}
	plan, err := s.plan()
	require.NoError(t, err)
	shares, fixed := bench.DefaultLatencyPlans(0)
	require.Equal(t, []*bench.LatencyPlan{shares, fixed}, plan.Latency)
	require.Equal(t, []string{"default", "tuned"}, plan.Brokers)
	s = settings{measure: "latency", out: os.Stdout, rates: []int{5}, brokers: "tuned", seconds: 10}
	plan, err = s.plan()
	require.NoError(t, err)
	require.Len(t, plan.Latency, 1)
	only := plan.Latency[0]
	require.Equal(t, []int{5}, only.Rates)
	require.Equal(t, 10*time.Second, only.Measure)
	require.Equal(t, 30*time.Second, only.Sustain)
	require.False(t, only.Reader)
	s.brokers = "fast"
	_, err = s.plan()
	require.EqualError(t, err, `unknown broker "fast"; must be default or tuned`)
}

func TestUnknownNames(t *testing.T) {
	_, err := build(t.Context(), t.TempDir(), t.TempDir(), []string{"memcached"}, "")
	require.ErrorContains(t, err, `unknown contender "memcached"; must be one of kudos, redis, goka, streams, sql`)
	s := settings{measure: "throughput", rounds: 1, out: os.Stdout}
	_, err = s.plan()
	require.ErrorContains(t, err, `unknown measurement "throughput"`)
	s = settings{measure: "drain", shapes: "warm", rounds: 1, out: os.Stdout}
	_, err = s.plan()
	require.ErrorContains(t, err, `unknown shape "warm"`)
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
