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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dropTimeout bounds dropping a test's database. A transaction that the test left open blocks it.
const dropTimeout = 20 * time.Second

// KeepVariable is the environment variable that, if not empty, makes tests keep the data and logs of their servers.
const KeepVariable = "KUDOS_TEST_KEEP"

// KafkaForTest starts a cluster for one test and closes it at the end. See Require for missing software.
func KafkaForTest(t testing.TB, o KafkaOptions) *Kafka {
	t.Helper()
	Require(t, NeedKafka)
	o.Keep, o.Log = keep(o.Keep), cmp.Or(o.Log, testLog(t))
	k, err := StartKafka(t.Context(), o)
	return own(t, k, err)
}

// MariaDBForTest starts a server for one test and closes it at the end.
func MariaDBForTest(t testing.TB, o DatabaseOptions) *Database {
	t.Helper()
	return databaseForTest(t, NeedMariaDB, StartMariaDB, o)
}

// MySQLForTest starts a server for one test and closes it at the end.
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

func own[S io.Closer](t testing.TB, server S, err error) S {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Close(), "close") })
	return server
}

func keep(wanted bool) bool { return wanted || os.Getenv(KeepVariable) != "" }

func testLog(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// ProgramForTest returns a program for one test, in a new directory unless one is given. At the end it is stopped, not
// killed: the next test would wait for the dead member's session timeout. If the test failed, its log is printed.
func ProgramForTest(t testing.TB, o ProgramOptions) *Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	p := NewProgram(o)
	t.Cleanup(func() {
		if p.Running() {
			assert.NoError(t, p.Stop())
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", p, p.LogTail())
		}
	})
	return p
}

// ReserveForTest reserves an address, host:port, for a server that may restart, until the end of the test.
func ReserveForTest(t testing.TB) string {
	t.Helper()
	r, err := Reserve()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Release()) })
	return r.Address()
}

// Shared are servers, and the program, for all tests of a binary. The first test that needs one starts or builds it:
//
//	var servers = stack.NewShared(stack.KafkaOptions{}, stack.DatabaseOptions{})
//
//	func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }
//
//	func TestIt(t *testing.T) {
//		brokers, dsn := servers.Kafka(t).Brokers(), servers.MariaDB(t).NewDatabase(t)
//
// Parallel tests each get a Kafka cluster of their own, and share the database servers: a test that stops a database
// server starts its own. Topic names are fixed, so a test on a cluster that others have used calls Reset. A server that
// an earlier test left down or paused is restarted or resumed for the next one.
type Shared struct {
	kafkaOptions KafkaOptions
	kudos        func() (string, error)
	mariaDB      func() (*Database, error)
	mySQL        func() (*Database, error)
	revival      sync.Mutex  // serializes the checks whether a database server runs
	idle         chan *Kafka // the longest idle one first: its groups' sessions have expired

	mu struct {
		sync.Mutex
		ends []func() error // cleanup of what was started
	}
}

// mostClusters is far above the number of parallel tests, each of which uses one cluster.
const mostClusters = 100

// NewShared returns a set in which nothing is started yet.
func NewShared(kafka KafkaOptions, database DatabaseOptions) *Shared {
	kafka.Keep, database.Keep = keep(kafka.Keep), keep(database.Keep)
	s := &Shared{kafkaOptions: kafka, idle: make(chan *Kafka, mostClusters)}
	s.kudos = sync.OnceValues(func() (string, error) {
		path, remove, err := buildKudos(context.Background())
		s.atEnd(remove)
		return path, err
	})
	// Do not retry a failed start: every other test would wait as long.
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

func (s *Shared) atEnd(end func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.ends = append(s.mu.ends, end)
}

// maxParallel limits the parallel tests of a package with servers, which take more CPU than other tests.
const maxParallel = 4

// Main runs the tests, closes what they started and returns the exit code for TestMain.
func (s *Shared) Main(m interface{ Run() int }) int {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f != nil {
		if n, err := strconv.Atoi(f.Value.String()); err == nil && n > maxParallel {
			_ = f.Value.Set(strconv.Itoa(maxParallel)) // like go test -parallel
		}
	}
	code := m.Run()
	if err := s.Close(); err != nil {
		fmt.Fprintf(os.Stderr, "close the shared servers: %v\n", err)
		code = max(code, 1)
	}
	return code
}

// Close kills every started server and removes its data, and the program.
func (s *Shared) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, end := range s.mu.ends {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// Kudos returns the path of the program.
func (s *Shared) Kudos(t testing.TB) string {
	t.Helper()
	path, err := s.kudos()
	require.NoError(t, err, "build kudos")
	return path
}

// Kafka returns a cluster, with all nodes running, that no other test uses until this one ends.
func (s *Shared) Kafka(t testing.TB) *Kafka {
	t.Helper()
	Require(t, NeedKafka)
	var k *Kafka
	select {
	case k = <-s.idle:
	default:
		var err error
		k, err = StartKafka(t.Context(), s.kafkaOptions)
		require.NoError(t, err, "shared kafka")
		s.atEnd(k.Close)
	}
	t.Cleanup(func() { s.idle <- k })
	require.NoError(t, k.eachNode(func(n *kafkaNode) error { return n.revive(t.Context()) }), "shared kafka")
	return k
}

// MariaDB returns the shared MariaDB server, running.
func (s *Shared) MariaDB(t testing.TB) *Database {
	t.Helper()
	return s.database(t, NeedMariaDB, s.mariaDB)
}

// MySQL returns the shared MySQL server, running.
func (s *Shared) MySQL(t testing.TB) *Database {
	t.Helper()
	return s.database(t, NeedMySQL, s.mySQL)
}

func (s *Shared) database(t testing.TB, need Software, start func() (*Database, error)) *Database {
	t.Helper()
	Require(t, need)
	d, err := start()
	require.NoError(t, err, "shared database")
	s.revival.Lock()
	defer s.revival.Unlock()
	require.NoError(t, d.revive(t.Context()), "shared database")
	return d
}

// NewDatabase creates an empty database for one test and returns its DSN. It is dropped at the end if the server runs.
func (d *Database) NewDatabase(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", d.databases.Add(1))
	require.NoError(t, d.CreateDatabase(t.Context(), name))
	t.Cleanup(func() {
		if !d.Running() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
		defer cancel()
		assert.NoError(t, d.DropDatabase(ctx, name), "clean up")
	})
	return d.DSN(name)
}
