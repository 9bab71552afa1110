package stack

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// dropTimeout bounds dropping a test's database. A transaction that the test left open holds it up.
const dropTimeout = 20 * time.Second

// KeepVariable is the environment variable that, when not empty, makes tests leave the data and logs of their servers.
const KeepVariable = "KUDOS_TEST_KEEP"

// KafkaForTest starts a cluster for one test and closes it at the test's end. See Require for where that is impossible.
func KafkaForTest(t testing.TB, o KafkaOptions) *Kafka {
	t.Helper()
	Require(t, NeedKafka)
	o.Keep = o.Keep || os.Getenv(KeepVariable) != ""
	if o.Log == nil {
		o.Log = testLog(t)
	}
	k, err := StartKafka(t.Context(), o)
	return own(t, k, err)
}

// MariaDBForTest starts a server for one test and closes it at the test's end.
func MariaDBForTest(t testing.TB, o DatabaseOptions) *Database {
	t.Helper()
	return databaseForTest(t, NeedMariaDB, StartMariaDB, o)
}

// MySQLForTest starts a server for one test and closes it at the test's end.
func MySQLForTest(t testing.TB, o DatabaseOptions) *Database {
	t.Helper()
	return databaseForTest(t, NeedMySQL, StartMySQL, o)
}

type startDatabaseFunc func(context.Context, DatabaseOptions) (*Database, error)

func databaseForTest(t testing.TB, need Software, start startDatabaseFunc, o DatabaseOptions) *Database {
	t.Helper()
	Require(t, need)
	o.Keep = o.Keep || os.Getenv(KeepVariable) != ""
	if o.Log == nil {
		o.Log = testLog(t)
	}
	d, err := start(t.Context(), o)
	return own(t, d, err)
}

// own hands a server to a test, which closes it.
func own[S io.Closer](t testing.TB, server S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return server
}

func testLog(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// Shared is one set of servers, and the program, for all the tests of a test binary. Each is started, or built, by the
// first test that asks for it:
//
//	var servers = stack.NewShared(stack.KafkaOptions{}, stack.DatabaseOptions{})
//
//	func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }
//
//	func TestIt(t *testing.T) {
//		brokers, dsn := servers.Kafka(t).Brokers(), servers.MariaDB(t).NewDatabase(t)
//
// Tests that run in parallel each get a Kafka cluster to themselves, and share the database servers: a test that stops
// a database server starts one of its own. Topic names are fixed, so a test on a cluster that others used calls Reset.
// A server that an earlier test left down or paused runs again when the next one gets it.
type Shared struct {
	kafkaOptions    KafkaOptions
	databaseOptions DatabaseOptions

	mu struct {
		sync.Mutex
		kudos   started[builtKudos]
		mariaDB started[*Database]
		mySQL   started[*Database]
	}
	clusters struct {
		sync.Mutex
		all  []*Kafka
		idle []*Kafka // the one that was idle for longest first: its groups' sessions are over
	}
}

// started is a server once it was asked for. A failed start is not tried again: the next tests would each wait as long.
type started[S io.Closer] struct {
	asked  bool
	server S
	err    error
}

func (s *started[S]) get(start func() (S, error)) (S, error) {
	if !s.asked {
		s.server, s.err = start()
		s.asked = true
	}
	return s.server, s.err
}

func (s *started[S]) close() error {
	if !s.asked || s.err != nil {
		return nil
	}
	return s.server.Close()
}

// NewShared makes a set that starts nothing yet.
func NewShared(kafka KafkaOptions, database DatabaseOptions) *Shared {
	keep := os.Getenv(KeepVariable) != ""
	kafka.Keep, database.Keep = kafka.Keep || keep, database.Keep || keep
	return &Shared{kafkaOptions: kafka, databaseOptions: database}
}

// atATime is how many tests with servers run in parallel at most. They compute more than other tests.
const atATime = 4

// Main runs the tests, closes what they started and returns the exit code for TestMain.
func (s *Shared) Main(m interface{ Run() int }) int {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f != nil {
		if n, err := strconv.Atoi(f.Value.String()); err == nil && n > atATime {
			_ = f.Value.Set(strconv.Itoa(atATime)) // as go test -parallel
		}
	}
	code := m.Run()
	if err := s.Close(); err != nil {
		fmt.Fprintf(os.Stderr, "close the shared servers: %v\n", err)
		code = max(code, 1)
	}
	return code
}

// Close kills every server that was started and removes its data, and the program.
func (s *Shared) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.mu.kudos.close(), s.mu.mariaDB.close(), s.mu.mySQL.close()}
	for _, k := range s.clusters.all {
		errs = append(errs, k.Close())
	}
	return errors.Join(errs...)
}

// Kudos is the path of the program.
func (s *Shared) Kudos(t testing.TB) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.mu.kudos.get(func() (builtKudos, error) { return buildKudos(t.Context()) })
	if err != nil {
		t.Fatalf("the program: %v", err)
	}
	return b.path
}

// Kafka is a cluster, with all its nodes up, that no other test uses until this one ends.
func (s *Shared) Kafka(t testing.TB) *Kafka {
	t.Helper()
	Require(t, NeedKafka)
	k, err := s.lease(t.Context())
	if err != nil {
		t.Fatalf("shared kafka: %v", err)
	}
	t.Cleanup(func() {
		s.clusters.Lock()
		defer s.clusters.Unlock()
		s.clusters.idle = append(s.clusters.idle, k)
	})
	if err := k.eachNode(func(n *kafkaNode) error { return n.revive(t.Context()) }); err != nil {
		t.Fatalf("shared kafka: %v", err)
	}
	return k
}

// lease takes an idle cluster, or starts one more: there are as many as tests that run in parallel.
func (s *Shared) lease(ctx context.Context) (*Kafka, error) {
	if k := s.takeIdle(); k != nil {
		return k, nil
	}
	k, err := StartKafka(ctx, s.kafkaOptions)
	if err != nil {
		return nil, err
	}
	s.clusters.Lock()
	defer s.clusters.Unlock()
	s.clusters.all = append(s.clusters.all, k)
	return k, nil
}

func (s *Shared) takeIdle() *Kafka {
	s.clusters.Lock()
	defer s.clusters.Unlock()
	if len(s.clusters.idle) == 0 {
		return nil
	}
	k := s.clusters.idle[0]
	s.clusters.idle = s.clusters.idle[1:]
	return k
}

// MariaDB is the shared MariaDB server, up.
func (s *Shared) MariaDB(t testing.TB) *Database {
	t.Helper()
	return s.database(t, NeedMariaDB, &s.mu.mariaDB, StartMariaDB)
}

// MySQL is the shared MySQL server, up.
func (s *Shared) MySQL(t testing.TB) *Database {
	t.Helper()
	return s.database(t, NeedMySQL, &s.mu.mySQL, StartMySQL)
}

func (s *Shared) database(t testing.TB, need Software, shared *started[*Database], start startDatabaseFunc) *Database {
	t.Helper()
	Require(t, need)
	s.mu.Lock()
	defer s.mu.Unlock()
	d, err := shared.get(func() (*Database, error) { return start(t.Context(), s.databaseOptions) })
	if err == nil {
		err = d.revive(t.Context())
	}
	if err != nil {
		t.Fatalf("shared database: %v", err)
	}
	return d
}

// NewDatabase creates an empty database for one test and returns its DSN. The database is dropped at the test's end if
// the server runs then.
func (d *Database) NewDatabase(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", d.databases.Add(1))
	if err := d.CreateDatabase(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !d.Running() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
		defer cancel()
		if err := d.DropDatabase(ctx, name); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return d.DSN(name)
}
