package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"kudos/dev"
	"kudos/integration/oracle"
	"kudos/integration/stack"
	"kudos/integration/testrun"
	"kudos/integration/tier"
)

// kafkaProperties allow a short session timeout, so that the group soon notices a killed processor.
var kafkaProperties = map[string]string{"group.min.session.timeout.ms": "1000"}

var shared = stack.NewShared(stack.KafkaOptions{ExtraProperties: kafkaProperties}, stack.DatabaseOptions{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

const partitions = 4 // of every topic, unless a test needs another number

type system struct {
	t                       testing.TB
	log                     *slog.Logger
	program                 string
	brokers                 []string
	dsn                     string
	shards                  []string // of several databases, instead of dsn
	db                      *sqlx.DB
	dbs                     []*sqlx.DB   // connections to all databases; db is the first
	kafka                   *stack.Kafka // nil if shared or embedded
	partitions, replication int          // of every topic
	// sessionTimeout is short if the broker allows it, so that the group soon notices killed processors.
	sessionTimeout string
	stateDir       string         // of a processor or ranker, for tests that lose it; a new one if empty
	processorArgs  []string       // of all processors
	emitInterval   string         // of rankers; 50ms if empty
	userBuckets    map[uint64]int // of posts spread over several partitions

	adm *kadm.Client   // see admin
	ora *oracle.Oracle // see oracle
}

func newSystem(t testing.TB) *system {
	return &system{t: t, program: shared.Kudos(t), log: slog.New(slog.DiscardHandler), sessionTimeout: "2s",
		partitions: partitions, replication: 1}
}

// parallel marks a test with its tier, such as tier.Verify, and lets it run in parallel with others.
func parallel(t *testing.T, mark func(testing.TB)) {
	t.Helper()
	mark(t)
	t.Parallel()
}

// verified returns a system for a test of `make verify`, which runs in parallel with others.
func verified(t *testing.T, change ...func(*system)) *system {
	parallel(t, tier.Verify)
	return newRealSystem(t, change...)
}

// newFolded is verified, with a processor that has counted a number of events.
func newFolded(t *testing.T, events int) *system {
	s := verified(t)
	s.toggles(3, events)
	s.processor("processor").start()
	s.drain(time.Minute)
	return s
}

// newRealSystem has a real Kafka and a real MariaDB, with topics and tables, and runs nothing yet.
func newRealSystem(t testing.TB, change ...func(*system)) *system {
	return newSystemOn(t, shared.MariaDB(t), change...)
}

func newSystemOn(t testing.TB, database *stack.Database, change ...func(*system)) *system {
	s := newEmptySystem(t)
	s.dsn = database.NewDatabase(t)
	for _, change := range change {
		change(s)
	}
	s.prepare()
	return s
}

// newEmptySystem has one of the shared clusters, without topics.
func newEmptySystem(t testing.TB) *system {
	s, kafka := newSystem(t), shared.Kafka(t)
	require.NoError(t, kafka.Reset(t.Context()))
	s.brokers = kafka.Brokers()
	return s
}

// newOwnSystem has its own Kafka, with a number of nodes, as many replicas of each partition, and extra properties.
func newOwnSystem(t testing.TB, partitions, nodes int, properties map[string]string) *system {
	s := newSystem(t)
	all := maps.Clone(kafkaProperties)
	maps.Copy(all, properties)
	s.kafka = stack.KafkaForTest(t, stack.KafkaOptions{Nodes: nodes, ExtraProperties: all, Log: s.log})
	s.brokers, s.partitions, s.replication = s.kafka.Brokers(), partitions, nodes
	s.dsn = shared.MariaDB(t).NewDatabase(t)
	s.prepare()
	return s
}

// newEmbeddedSystem is `kudos dev`: everything in one process.
func newEmbeddedSystem(t testing.TB) *system {
	s := newSystem(t)
	dir := t.TempDir()
	ready, free := filepath.Join(dir, "ready.json"), "127.0.0.1:0"
	dev := stack.ProgramForTest(t, stack.ProgramOptions{Name: "dev", Path: s.program, Dir: dir, Log: s.log,
		Args: []string{"dev", "--kafka-addr", free, "--mysql-addr", free, "--http-addr", free, "--reader-addr", free,
			"--admin-addr", free, "--ready-file", ready, "--set", fmt.Sprintf("topics.partitions=%d", partitions)},
		Probe: func(context.Context) error { _, err := os.Stat(ready); return err }})
	require.NoError(t, dev.Start(t.Context()), "kudos dev")
	var at struct{ Kafka, MySQL string }
	require.NoError(t, json.Unmarshal([]byte(readText(t, ready)), &at))
	s.brokers, s.dsn = []string{at.Kafka}, "root@tcp("+at.MySQL+")/kudos"
	s.connect()
	return s
}

// newEmbeddedServers embeds the broker and database in this process, with topics and tables, and runs nothing yet.
func newEmbeddedServers(t testing.TB) *system {
	s := newSystem(t)
	broker, err := dev.StartBroker("127.0.0.1:0", "", s.log)
	require.NoError(t, err)
	testrun.Start(t, "the broker", time.Minute, broker.Run)
	database, err := dev.StartDatabase("127.0.0.1:0")
	require.NoError(t, err)
	testrun.Start(t, "the database", time.Minute, database.Run)
	s.brokers, s.dsn, s.sessionTimeout = []string{broker.Address()}, database.DSN(), "6s"
	s.prepare()
	return s
}

func (s *system) prepare() {
	s.command(s.topics(s.partitions, "apply", "--set", s.buckets())...)
	s.command("migrate", "--set", s.mysql())
	s.connect()
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

func (s *system) mysql() string {
	if len(s.shards) > 0 {
		return "mysql.shards=" + strings.Join(s.shards, ",")
	}
	return "mysql.dsn=" + s.dsn
}

// topics returns a command of `kudos topics`, with the flags that describe the topics.
func (s *system) topics(partitions int, args ...string) []string {
	return slices.Concat([]string{"topics"}, args, []string{"--brokers", s.brokerList(),
		"--set", fmt.Sprintf("topics.partitions=%d", partitions),
		"--set", fmt.Sprintf("topics.replication_factor=%d", s.replication)})
}

func (s *system) buckets() string {
	var list []string
	for post, n := range s.userBuckets {
		list = append(list, fmt.Sprintf("%d:%d", post, n))
	}
	return "topics.user_buckets=" + strings.Join(list, ",")
}

func (s *system) brokerList() string { return strings.Join(s.brokers, ",") }

func waitFor(t testing.TB, within time.Duration, what string, condition func() bool) {
	waitSaid(t, within, what, func() (bool, any) { return condition(), "condition not met" })
}

// waitSaid is waitFor with a condition that also returns the current state, to log on failure.
func waitSaid(t testing.TB, within time.Duration, what string, condition func() (bool, any)) {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, now := condition()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.FailNow(t, "timed out", "waited %v for %s; now: %v", within, what, now)
		}
	}
}

// pause sleeps, for tests in which time itself, or a kill at a random time, is the point.
func pause(t testing.TB, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}
