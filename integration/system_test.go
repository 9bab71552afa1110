package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev"
	"kudos/integration/stack"
	"kudos/integration/testrun"
	"kudos/schema"
)

// partitions of every topic where a test does not need another number.
const partitions = 4

// system is a running kudos and where its servers are.
type system struct {
	t                       testing.TB
	log                     *slog.Logger
	program                 string
	brokers                 []string
	dsn                     string
	shards                  []string // of several databases, in place of dsn
	http                    string   // empty where no producer runs
	db                      *sqlx.DB
	dbs                     []*sqlx.DB   // of all databases, db the first of them
	kafka                   *stack.Kafka // nil where it is shared or embedded
	partitions, replication int          // of every topic
	// sessionTimeout is short where the broker allows it: killed processors are missed soon.
	sessionTimeout string
	admin          string         // where a processor tells of its readiness
	stateDir       string         // of a processor or ranker, for tests that lose it; one of its own if empty
	emitInterval   string         // of rankers; 50ms if empty
	userBuckets    map[uint64]int // of posts that are in several partitions
}

// command runs the program to its end and returns what it printed.
func (s *system) command(args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, s.program, args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("kudos %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func newSystem(t testing.TB) *system {
	t.Helper()
	return &system{t: t, program: shared.Kudos(t), log: slog.New(slog.DiscardHandler), sessionTimeout: "2s", admin: "127.0.0.1:0", partitions: partitions, replication: 1}
}

func (s *system) connect() {
	dsns := s.shards
	if len(dsns) == 0 {
		dsns = []string{s.dsn}
	}
	s.dbs = nil
	for _, dsn := range dsns {
		db, err := sqlx.Open("mysql", dsn)
		require.NoError(s.t, err)
		s.t.Cleanup(func() { db.Close() })
		s.dbs = append(s.dbs, db)
	}
	s.db = s.dbs[0]
}

// mysql is the setting that names the database, or databases.
func (s *system) mysql() string {
	if len(s.shards) > 0 {
		return "mysql.shards=" + strings.Join(s.shards, ",")
	}
	return "mysql.dsn=" + s.dsn
}

// newRealSystem has a real Kafka and a real MariaDB, with topics and tables made, and
// runs nothing yet.
func newRealSystem(t testing.TB) *system {
	t.Helper()
	return newSystemOn(t, shared.MariaDB(t))
}

func newSystemOn(t testing.TB, database *stack.Database) *system {
	t.Helper()
	s := newSystem(t)
	kafka := shared.Kafka(t)
	require.NoError(t, kafka.Reset(t.Context()))
	s.brokers = kafka.Brokers()
	s.dsn = database.NewDatabase(t)
	s.prepare()
	return s
}

// newOwnSystem has a Kafka of its own, with properties of its own.
func newOwnSystem(t testing.TB, partitions int, o stack.KafkaOptions) *system {
	t.Helper()
	s := newSystem(t)
	properties := map[string]string{"group.min.session.timeout.ms": "1000"}
	maps.Copy(properties, o.ExtraProperties)
	o.ExtraProperties, o.Log = properties, s.log
	s.kafka = stack.KafkaForTest(t, o)
	s.brokers, s.partitions, s.replication = s.kafka.Brokers(), partitions, max(1, o.Nodes)
	s.dsn = shared.MariaDB(t).NewDatabase(t)
	s.prepare()
	return s
}

// newEmbeddedSystem is `kudos dev`: all in one process.
func newEmbeddedSystem(t testing.TB, args ...string) *system {
	t.Helper()
	s := newSystem(t)
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready.json")
	dev := stack.NewProgram(stack.ProgramOptions{
		Name: "dev", Path: s.program, Dir: dir, Log: s.log,
		Args: append([]string{"dev", "--kafka-addr", "127.0.0.1:0", "--mysql-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--reader-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0",
			"--ready-file", ready, "--set", fmt.Sprintf("topics.partitions=%d", partitions)}, args...),
		Probe: func(context.Context) error { _, err := os.Stat(ready); return err },
	})
	require.NoError(t, dev.Start(t.Context()), "kudos dev")
	t.Cleanup(func() {
		// Not killed: it would leave the folder of its state table behind.
		if dev.Running() {
			require.NoError(t, dev.Stop())
		}
		s.showLog(dev)
	})
	var at struct{ Kafka, MySQL, HTTP, Admin string }
	text, err := os.ReadFile(ready)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &at))
	s.brokers, s.dsn, s.http = []string{at.Kafka}, "root@tcp("+at.MySQL+")/kudos", at.HTTP
	s.connect()
	return s
}

// newEmbeddedServers has the embedded broker and database in this process, with topics
// and tables made, and runs nothing yet.
func newEmbeddedServers(t testing.TB) *system {
	t.Helper()
	s := newSystem(t)
	brokerOptions, databaseOptions := dev.DefaultBrokerOptions(), dev.DefaultDatabaseOptions()
	brokerOptions.Address, databaseOptions.Address = "127.0.0.1:0", "127.0.0.1:0"
	broker, database := dev.NewBroker(brokerOptions, s.log), dev.NewDatabase(databaseOptions, s.log)
	require.NoError(t, broker.Start())
	testrun.Start(t, "the broker", time.Minute, broker.Run)
	require.NoError(t, database.Start())
	testrun.Start(t, "the database", time.Minute, database.Run)
	s.brokers, s.dsn, s.sessionTimeout = []string{broker.Address()}, database.DSN(), "6s"
	s.prepare()
	return s
}

// prepare makes topics and tables.
func (s *system) prepare() {
	s.t.Helper()
	s.command("topics", "apply", "--brokers", s.brokerList(), "--set", s.buckets(), "--set", fmt.Sprintf("topics.partitions=%d", s.partitions), "--set", fmt.Sprintf("topics.replication_factor=%d", s.replication))
	s.command("migrate", "--set", s.mysql())
	s.connect()
}

// buckets is the setting that names the posts with user buckets.
func (s *system) buckets() string {
	var list []string
	for post, n := range s.userBuckets {
		list = append(list, fmt.Sprintf("%d:%d", post, n))
	}
	return "topics.user_buckets=" + strings.Join(list, ",")
}

func (s *system) brokerList() string { return strings.Join(s.brokers, ",") }

// processor makes a processor process with a state folder of its own; args are more
// flags. It is stopped at the end of the test.
func (s *system) processor(name string, args ...string) *stack.Server {
	dir := s.t.TempDir()
	p := stack.NewProgram(stack.ProgramOptions{
		Name: name, Path: s.program, Dir: dir, Log: s.log,
		Args: append([]string{"processor", "--brokers", s.brokerList(), "--set", s.mysql(),
			"--set", "processor.state_dir=" + cmp.Or(s.stateDir, filepath.Join(dir, "state")), "--set", "processor.session_timeout=" + s.sessionTimeout, "--set", "admin.addr=" + s.admin}, args...),
	})
	s.t.Cleanup(func() {
		// Not killed: its groups would have to wait for it in the next test.
		if p.Running() {
			require.NoError(s.t, p.Stop())
		}
		s.showLog(p)
	})
	return p
}

// showLog prints a process's log if the test has failed.
func (s *system) showLog(p *stack.Server) {
	if s.t.Failed() {
		s.t.Logf("log of %s:\n%s", p, p.LogTail())
	}
}

// client is a plain Kafka client, closed with the test.
func (s *system) client(opts ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	cl := s.ownClient(opts...)
	s.t.Cleanup(cl.Close)
	return cl
}

// ownClient is closed by the caller: a test that looks again and again keeps none.
func (s *system) ownClient(opts ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.brokers...)}, opts...)...)
	require.NoError(s.t, err)
	return cl
}

// produce writes records to likes as any franz-go client would, and returns when
// Kafka has them.
func (s *system) produce(records []*kgo.Record) {
	s.t.Helper()
	cl := s.client(kgo.DefaultProduceTopic(schema.TopicLikes), kgo.ProducerBatchMaxBytes(60<<10), kgo.MaxBufferedRecords(1<<20))
	require.NoError(s.t, cl.ProduceSync(s.t.Context(), records...).FirstErr())
}

// waitFor waits, with a bound, until condition holds.
func waitFor(t testing.TB, within time.Duration, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited %v for %s", within, what)
		}
	}
}
