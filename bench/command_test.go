package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

var shared = stack.NewShared(stack.KafkaOptions{}, stack.DatabaseOptions{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// named is servers that a user of `kudos bench` names.
type named struct {
	t       *testing.T
	brokers []string
	dsn     string
	db      *sqlx.DB
	adm     *kadm.Client
}

func newNamed(t *testing.T) *named {
	t.Helper()
	kafka := shared.Kafka(t)
	require.NoError(t, kafka.Reset(t.Context()))
	n := &named{t: t, brokers: kafka.Brokers(), dsn: shared.MariaDB(t).NewDatabase(t)}
	var err error
	n.db, err = sqlx.Open("mysql", n.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.db.Close()) })
	// Cached metadata must not be older than a command takes.
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.brokers...), kgo.MetadataMinAge(100*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	n.adm = kadm.NewClient(cl)
	return n
}

func (n *named) bench(args ...string) (code int, stdout, stderr string) {
	n.t.Helper()
	cmd := exec.CommandContext(testkit.Within(n.t, 4*time.Minute), shared.Kudos(n.t),
		append([]string{"bench", "--brokers", strings.Join(n.brokers, ","), "--dir", n.t.TempDir(),
			"--set", "topics.replication_factor=1", "--set", "topics.partitions=2"}, args...)...)
	cmd.Env = append(os.Environ(), "KUDOS_MYSQL_DSN="+n.dsn)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		require.NoError(n.t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func (n *named) topics() []string {
	n.t.Helper()
	topics, err := n.adm.ListTopics(n.t.Context())
	require.NoError(n.t, err)
	return topics.Names()
}

func (n *named) tables() (names []string) {
	n.t.Helper()
	require.NoError(n.t, n.db.SelectContext(n.t.Context(), &names, "SHOW TABLES"))
	return names
}

// TestCommandLeavesNothing checks that a benchmark removes what it created, and with --keep what the last one kept.
func TestCommandLeavesNothing(t *testing.T) {
	tier.Verify(t)
	n := newNamed(t)
	code, stdout, stderr := n.bench("--shapes", "skewed-1000", "--events", "5000", "--recovery-events", "10000",
		"--latency-time", "1s", "--producer-time", "100ms", "--keep", "--output", "json")
	require.Zero(t, code, stderr)
	var report Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.Len(t, report.Runs, 5)
	require.EqualValues(t, 2, report.Runs[0].Load.Shape.Partitions, "as set in topics.partitions")
	require.EqualValues(t, 5000, report.Runs[0].Drain.Events)
	shares, fixed := report.Runs[1].Latency, report.Runs[2].Latency
	require.Positive(t, shares.Sustainable.EventsPerSecond)
	require.Less(t, shares.Sustainable.EventsPerSecond, shares.DrainEventsPerSecond)
	require.Equal(t, 3.0, shares.Sustainable.Seconds)
	require.Len(t, shares.Levels, 3)
	for i, level := range shares.Levels {
		require.Equal(t, []int{10, 50, 80}[i], level.Percent)
		require.Positive(t, level.MySQL.Probes)
		require.Equal(t, level.MySQL.Probes, level.Reader.Probes, "the same number of probes")
		require.Equal(t, level.MySQL.Probes, level.Live.Probes, "the same number of probes")
		require.Positive(t, level.MySQL.P50)
		require.LessOrEqual(t, level.MySQL.P50, level.MySQL.Max)
		require.Positive(t, level.Used[ContenderProcess].CPUSeconds)
	}
	require.Equal(t, 1000, fixed.Levels[0].Rate)
	require.Nil(t, fixed.Sustainable)
	require.Equal(t, []string{"kudos", "sender", "reader"}, report.Runs[2].Processes)
	recovery := report.Runs[3].Recovery
	require.Equal(t, recovery.Drained.State.Pairs, recovery.Pairs)
	require.Greater(t, recovery.Records, recovery.Pairs)
	require.Positive(t, recovery.EntriesPerSecond)
	require.Positive(t, recovery.KilledSeconds)
	require.Positive(t, recovery.RSSBytes)
	accepting := report.Runs[4].Producer
	require.Positive(t, accepting.Single.Capacity.LikesPerSecond)
	require.Positive(t, accepting.Single.Half.P99Ms)
	require.Equal(t, 1000, accepting.Batch.LikesPerRequest)
	require.Greater(t, accepting.Batch.Capacity.LikesPerSecond, accepting.Single.Capacity.LikesPerSecond)
	for _, topic := range schema.Topics(1, 1) {
		require.Contains(t, n.topics(), topic.Name, "--keep keeps it")
	}
	require.Contains(t, n.tables(), "like_count")
	require.Contains(t, n.tables(), "kudos_bench")

	code, stdout, stderr = n.bench("drain", "--shapes", "hot", "--events", "2000")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "DRAIN     ")
	require.Contains(t, stdout, "hot: one post, 1 partition, seed 1")
	require.Regexp(t, `(?m)^  counted +[1-9].* events/s$`, stdout)
	require.Contains(t, stderr, "round 1 of 1, hot, kudos: ")
	require.Empty(t, n.tables(), "it removes its tables and those of the run before")
	for _, topic := range n.topics() {
		require.True(t, strings.HasPrefix(topic, "__"), "topic %s is left", topic)
	}
	groups, err := n.adm.ListGroups(t.Context())
	require.NoError(t, err)
	require.Empty(t, groups.Groups())
}

// TestCommandRejectsUsedServers checks that servers in use stay unchanged, and that the error says what to do.
func TestCommandRejectsUsedServers(t *testing.T) {
	tier.Verify(t)
	for name, c := range map[string]struct {
		topics, statements []string
		want               string
		tables             []string // remaining tables
	}{
		"topics": {topics: []string{schema.TopicLikes},
			want: "this Kafka cluster has topics of kudos (likes); a benchmark needs a cluster without them: use " +
				"another with --brokers"},
		"tables": {statements: []string{"CREATE TABLE like_count (post_id BIGINT PRIMARY KEY)"},
			tables: []string{"like_count"},
			want:   "this database has tables of kudos (like_count); a benchmark needs a database without them"},
		"another cluster": {statements: []string{"CREATE TABLE kudos_bench (cluster_id VARCHAR(64))",
			"INSERT INTO kudos_bench VALUES ('another')"},
			want: "cluster (another); run it with that cluster", tables: []string{"kudos_bench"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNamed(t)
			for _, topic := range c.topics {
				_, err := n.adm.CreateTopic(t.Context(), 1, 1, nil, topic)
				require.NoError(t, err)
			}
			for _, statement := range c.statements {
				_, err := n.db.ExecContext(t.Context(), statement)
				require.NoError(t, err)
			}
			code, _, stderr := n.bench("drain", "--events", "1000")
			require.Equal(t, 1, code)
			require.Contains(t, stderr, c.want)
			require.Subset(t, n.topics(), c.topics)
			require.Equal(t, c.tables, n.tables())
		})
	}
}

// TestTablesAreThoseOfMigrate checks that a benchmark removes the tables that `kudos migrate` creates.
func TestTablesAreThoseOfMigrate(t *testing.T) {
	tier.Verify(t)
	n := newNamed(t)
	out, err := exec.CommandContext(t.Context(), shared.Kudos(t), "migrate", "--mysql-dsn", n.dsn).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.ElementsMatch(t, kudosTables, n.tables(), "to fix this: update kudosTables")
}
