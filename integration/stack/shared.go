package stack

import (
	"cmp"
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
	o.Keep, o.Log = keep(o.Keep), cmp.Or(o.Log, testLog(t))
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
	o.Keep, o.Log = keep(o.Keep), cmp.Or(o.Log, testLog(t))
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

func keep(wanted bool) bool { return wanted || os.Getenv(KeepVariable) != "" }

func testLog(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// ProgramForTest makes a program for one test, in a directory of its own unless one is given. At the test's end it is
// stopped and not killed: kudos' groups would have to wait for a dead member in the next test. If the test has failed,
// its log is told.
func ProgramForTest(t testing.TB, o ProgramOptions) *Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	p := NewProgram(o)
	t.Cleanup(func() {
		if p.Running() {
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", p, p.LogTail())
		}
	})
	return p
}

// ReserveForTest takes an address, host:port, for a server of a test that may go and come back, until the test's end.
func ReserveForTest(t testing.TB) string {
	t.Helper()
	r, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Release(); err != nil {
			t.Error(err)
		}
	})
	return r.Address()
}

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
	kafkaOptions KafkaOptions
	kudos        func() (string, error)
	mariaDB      func() (*Database, error)
	mySQL        func() (*Database, error)
	revival      sync.Mutex  // one test at a time looks whether a database server runs
	idle         chan *Kafka // the one that was idle for longest first: its groups' sessions are over

	mu struct {
		sync.Mutex
		ends []func() error // of what was started
	}
}

// mostClusters is far more than are ever started: one for each test that runs in parallel.
const mostClusters = 100

// NewShared makes a set that starts nothing yet.
func NewShared(kafka KafkaOptions, database DatabaseOptions) *Shared {
	kafka.Keep, database.Keep = keep(kafka.Keep), keep(database.Keep)
	s := &Shared{kafkaOptions: kafka, idle: make(chan *Kafka, mostClusters)}
	s.kudos = sync.OnceValues(func() (string, error) {
		path, remove, err := buildKudos(context.Background())
		s.atEnd(remove)
		return path, err
	})
	// A failed start is not tried again: the next tests would each wait as long.
	once := func(start startDatabaseFunc) func() (*Database, error) {
		return sync.OnceValues(func() (*Database, error) {
			d, err := start(context.Background(), database)
			if err == nil {
				s.atEnd(d.Close)
			}
			return d, err
		})
	}
	s.mariaDB, s.mySQL = once(StartMariaDB), once(StartMySQL)
	return s
}

// atEnd has Close call a function.
func (s *Shared) atEnd(end func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.ends = append(s.mu.ends, end)
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
	var errs []error
	for _, end := range s.mu.ends {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// Kudos is the path of the program.
func (s *Shared) Kudos(t testing.TB) string {
	t.Helper()
	path, err := s.kudos()
	if err != nil {
		t.Fatalf("the program: %v", err)
	}
	return path
}

// Kafka is a cluster, with all its nodes up, that no other test uses until this one ends.
func (s *Shared) Kafka(t testing.TB) *Kafka {
	t.Helper()
	Require(t, NeedKafka)
	var k *Kafka
	select {
	case k = <-s.idle:
	default:
		var err error
		if k, err = StartKafka(t.Context(), s.kafkaOptions); err != nil {
			t.Fatalf("shared kafka: %v", err)
		}
		s.atEnd(k.Close)
	}
	t.Cleanup(func() { s.idle <- k })
	if err := k.eachNode(func(n *kafkaNode) error { return n.revive(t.Context()) }); err != nil {
		t.Fatalf("shared kafka: %v", err)
	}
	return k
}

// MariaDB is the shared MariaDB server, up.
func (s *Shared) MariaDB(t testing.TB) *Database {
	t.Helper()
	return s.database(t, NeedMariaDB, s.mariaDB)
}

// MySQL is the shared MySQL server, up.
func (s *Shared) MySQL(t testing.TB) *Database {
	t.Helper()
	return s.database(t, NeedMySQL, s.mySQL)
}

func (s *Shared) database(t testing.TB, need Software, start func() (*Database, error)) *Database {
	t.Helper()
	Require(t, need)
	d, err := start()
	if err == nil {
		s.revival.Lock()
		defer s.revival.Unlock()
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
