package bench_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/bench"
	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// shared are the servers of the tests here.
var shared = stack.NewShared(stack.KafkaOptions{}, stack.DatabaseOptions{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// named is servers that a user of `kudos bench` names.
type named struct {
	t       *testing.T
	brokers []string
	dsn     string
	db      *sql.DB
	adm     *kadm.Client
}

func newNamed(t *testing.T) *named {
	t.Helper()
	kafka := shared.Kafka(t)
	require.NoError(t, kafka.Reset(t.Context()))
	n := &named{t: t, brokers: kafka.Brokers(), dsn: shared.MariaDB(t).NewDatabase(t)}
	var err error
	n.db, err = sql.Open("mysql", n.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.db.Close()) })
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.brokers...))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	n.adm = kadm.NewClient(cl)
	return n
}

// bench runs `kudos bench` to its end.
func (n *named) bench(args ...string) (code int, stdout, stderr string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, shared.Kudos(n.t), append([]string{"bench", "--brokers", strings.Join(n.brokers, ","), "--dir", n.t.TempDir(),
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
	rows, err := n.db.QueryContext(n.t.Context(), "SHOW TABLES")
	require.NoError(n.t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		require.NoError(n.t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(n.t, rows.Err())
	return names
}

// TestCommandLeavesNothing: it measures, removes what it made, and with --keep leaves what the next one removes.
func TestCommandLeavesNothing(t *testing.T) {
	tier.Verify(t)
	n := newNamed(t)
	code, stdout, stderr := n.bench("drain", "--shapes", "skewed-1000", "--events", "3000", "--keep", "--output", "json")
	require.Zero(t, code, stderr)
	var report bench.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.Len(t, report.Runs, 1)
	require.EqualValues(t, 2, report.Runs[0].Load.Shape.Partitions, "as topics.partitions is set")
	require.EqualValues(t, 3000, report.Runs[0].Drain.Events)
	for _, topic := range schema.Topics(1, 1) {
		require.Contains(t, n.topics(), topic.Name, "--keep leaves it")
	}
	require.Contains(t, n.tables(), "like_count")
	require.Contains(t, n.tables(), "kudos_bench")

	code, stdout, stderr = n.bench("drain", "recovery", "producer", "--shapes", "hot", "--events", "2000", "--recovery-events", "3000", "--producer-time", "100ms")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "DRAIN     ")
	require.Contains(t, stdout, "hot: one post, 1 partition, seed 1")
	require.Contains(t, stdout, "RECOVERY")
	require.Contains(t, stdout, "ACCEPTING")
	require.Regexp(t, `(?m)^  batches of 1,000, highest rate +[1-9].* likes/s$`, stdout)
	require.Contains(t, stderr, "round 1 of 1, hot, kudos: ")
	require.Empty(t, n.tables(), "it removes what it and the one before made")
	for _, topic := range n.topics() {
		require.True(t, strings.HasPrefix(topic, "__"), "topic %s is left", topic)
	}
	groups, err := n.adm.ListGroups(t.Context())
	require.NoError(t, err)
	require.Empty(t, groups.Groups())
}

// TestCommandRefusesWhatIsInUse: nothing of it is touched, and the message says what to do.
func TestCommandRefusesWhatIsInUse(t *testing.T) {
	tier.Verify(t)
	t.Run("topics", func(t *testing.T) {
		n := newNamed(t)
		_, err := n.adm.CreateTopic(t.Context(), 1, 1, nil, schema.TopicLikes)
		require.NoError(t, err)
		code, _, stderr := n.bench("drain", "--events", "1000")
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "this Kafka cluster has topics of kudos (likes); a benchmark needs a cluster without them: name another with --brokers")
		require.Contains(t, n.topics(), schema.TopicLikes)
		require.Empty(t, n.tables())
	})
	t.Run("tables", func(t *testing.T) {
		n := newNamed(t)
		_, err := n.db.ExecContext(t.Context(), "CREATE TABLE like_count (post_id BIGINT PRIMARY KEY)")
		require.NoError(t, err)
		code, _, stderr := n.bench("drain", "--events", "1000")
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "this database has tables of kudos (like_count); a benchmark needs a database without them")
		require.Equal(t, []string{"like_count"}, n.tables())
	})
	t.Run("another cluster's", func(t *testing.T) {
		n := newNamed(t)
		_, err := n.db.ExecContext(t.Context(), "CREATE TABLE kudos_bench (cluster_id VARCHAR(64))")
		require.NoError(t, err)
		_, err = n.db.ExecContext(t.Context(), "INSERT INTO kudos_bench VALUES ('another')")
		require.NoError(t, err)
		code, _, stderr := n.bench("drain", "--events", "1000")
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "left (another); run it with that cluster")
	})
}

// TestTablesAreThoseOfMigrate: what a benchmark removes is what `kudos migrate` makes.
func TestTablesAreThoseOfMigrate(t *testing.T) {
	tier.Verify(t)
	n := newNamed(t)
	out, err := exec.CommandContext(t.Context(), shared.Kudos(t), "migrate", "--mysql-dsn", n.dsn).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.ElementsMatch(t, bench.Tables(), n.tables(), "mend: tables in named.go")
}

func TestCommandUsage(t *testing.T) {
	tier.Verify(t)
	program := shared.Kudos(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"throughput"}, `invalid argument "throughput"`},
		{[]string{"--events", "0", "--mysql-dsn", "u@tcp(h:1)/d"}, "--events is 0; at least 1"},
		{[]string{"--producer-time", "99ms", "--mysql-dsn", "u@tcp(h:1)/d"}, "--producer-time is 99ms; at least 100ms"},
		{[]string{"--shapes", "warm", "--mysql-dsn", "u@tcp(h:1)/d"}, `there is no shape "warm"; there are [hot`},
		{nil, "mysql.dsn is not set"},
	} {
		cmd := exec.CommandContext(t.Context(), program, append([]string{"bench"}, c.args...)...)
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Equal(t, 2, cmd.ProcessState.ExitCode(), "%s: %s", fmt.Sprint(c.args), out)
		require.Contains(t, string(out), c.want)
	}
}
