package sql

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/memory"
	"github.com/dolthub/go-mysql-server/server"
	gmssql "github.com/dolthub/go-mysql-server/sql"
	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/stack"
	"kudos/integration/tier"
)

// serverVariable is the environment variable with the DSN of a MariaDB or MySQL server whose user may create databases
// and users and set global variables. If it is set, the tests use that server and start none.
const serverVariable = "KUDOS_TEST_MYSQL_DSN"

var shared = stack.NewShared(stack.KafkaOptions{}, stack.DatabaseOptions{}) // each started by the first test in need

func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard) // the embedded server logs a banner
	os.Exit(shared.Main(m))
}

const rawTimeout = time.Minute // of statements that bypass the Store: a DROP would wait for a transaction left open

type database struct {
	options Options
	real    bool // has row locks and enforces its limits
}

// embeddedDatabase is an in-memory go-mysql-server. It has no row locks, so it supports only one writer.
func embeddedDatabase(t testing.TB) database {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	provider := memory.NewDBProvider(memory.NewDatabase("kudos"))
	config := server.Config{Protocol: "tcp", Address: listener.Addr().String(), Listener: listener}
	srv, err := server.NewServer(config, sqle.NewDefault(provider), gmssql.NewContext,
		memory.NewSessionBuilder(provider), nil)
	require.NoError(t, err)
	ended := testkit.Later(srv.Start)
	t.Cleanup(func() {
		require.NoError(t, srv.Close())
		require.NoError(t, <-ended)
	})
	o := testOptions("root@tcp(" + listener.Addr().String() + ")/kudos")
	o.MaxOpenConns = 1
	o.LockWaitTimeout = 0 // a global variable on that server
	return database{options: o}
}

// realServer is a server to test on. If it is not installed, dsn skips the test, or fails it in CI.
type realServer struct {
	name string
	dsn  func(testing.TB) string
}

func realServers() []realServer {
	if dsn := os.Getenv(serverVariable); dsn != "" {
		return []realServer{{"given", func(testing.TB) string { return dsn }}}
	}
	return []realServer{
		{"MariaDB", func(t testing.TB) string { t.Helper(); tier.Test(t); return shared.MariaDB(t).DSN("") }},
		{"MySQL", func(t testing.TB) string { t.Helper(); tier.Verify(t); return shared.MySQL(t).DSN("") }},
	}
}

func realDatabase(t testing.TB, dsn string) database {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err, serverVariable)
	config.DBName, config.ReadTimeout = "", rawTimeout
	admin, err := sqlx.Connect("mysql", config.FormatDSN())
	require.NoError(t, err, serverVariable)
	name := fmt.Sprintf("kudos_test_%08x", rand.Uint32())
	admin.MustExec("CREATE DATABASE " + name)
	t.Cleanup(func() {
		_, err := admin.Exec("DROP DATABASE " + name)
		require.NoError(t, err, "is a transaction still open on this database?")
		require.NoError(t, admin.Close())
	})
	config.DBName = name
	return database{options: testOptions(config.FormatDSN()), real: true}
}

func noServer(t testing.TB) database {
	return database{options: testOptions("root:hunter2@unix(" + t.TempDir() + "/mysql.sock)/kudos")}
}

// onEachServer runs test on an empty database, on the embedded server and on each real one.
func onEachServer(t *testing.T, test func(t *testing.T, db database)) {
	t.Run("embedded", func(t *testing.T) { test(t, embeddedDatabase(t)) })
	onRealServers(t, test)
}

func inEachCase[C any](t *testing.T, cases map[string]C, test func(t *testing.T, db database, c C)) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			onEachServer(t, func(t *testing.T, db database) { test(t, db, c) })
		})
	}
}

func onRealServers(t *testing.T, test func(t *testing.T, db database)) {
	for _, s := range realServers() {
		t.Run(s.name, func(t *testing.T) { test(t, realDatabase(t, s.dsn(t))) })
	}
}

// testOptions have shorter timeouts, so that failing tests end soon.
func testOptions(dsn string) Options {
	o := DefaultOptions()
	o.DSN = dsn
	o.ReadTimeout = 10 * time.Second
	o.RetryBackoff, o.RetryBackoffMax = time.Millisecond, 5*time.Millisecond
	return o
}

func (d database) migrated(t testing.TB) database {
	t.Helper()
	require.NoError(t, Migrate(t.Context(), d.options, discardLog()))
	return d
}

// store is a Store on d, as one process has it.
func (d database) store(t testing.TB, change ...func(*Options)) *Store {
	t.Helper()
	o := d.options
	for _, f := range change {
		f(&o)
	}
	s, err := New(o, discardLog())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func (d database) with(t testing.TB, change func(*mysql.Config)) database {
	t.Helper()
	config, err := mysql.ParseDSN(d.options.DSN)
	require.NoError(t, err)
	change(config)
	d.options.DSN = config.FormatDSN()
	return d
}

// raw is a connection that bypasses the Store, for inspecting and for breaking things.
func (d database) raw(t testing.TB) *sqlx.DB {
	t.Helper()
	db, err := sqlx.Open("mysql", d.with(t, func(c *mysql.Config) { c.ReadTimeout = rawTimeout }).options.DSN)
	require.NoError(t, err)
	db.SetMaxIdleConns(0)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// begin starts a transaction that bypasses the Store. It ends with the test at the latest.
func (d database) begin(t testing.TB) *sqlx.Tx {
	t.Helper()
	tx, err := d.raw(t).Beginx()
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() }) // usually ended before
	return tx
}

// table returns the columns k and v of a query.
func (d database) table(t testing.TB, query string) map[string]string {
	t.Helper()
	var rows []struct{ K, V string }
	require.NoError(t, d.raw(t).Select(&rows, query))
	found := map[string]string{}
	for _, row := range rows {
		found[row.K] = row.V
	}
	return found
}

// counts is like_count: likes and dislikes by post.
func (d database) counts(t testing.TB) map[string]string {
	t.Helper()
	return d.table(t, "SELECT post_id k, CONCAT_WS(' ', `count`, dislike_count) v FROM like_count")
}

// hours is like_hourly: likes and dislikes by hour, region and partition.
func (d database) hours(t testing.TB) map[string]string {
	t.Helper()
	return d.table(t, "SELECT CONCAT_WS(' ', hour, region, partition_id) k, CONCAT_WS(' ', likes, dislikes) v"+
		" FROM like_hourly")
}

func (d database) scalar(t testing.TB, query string) string {
	t.Helper()
	var value stdsql.NullString
	require.NoError(t, d.raw(t).Get(&value, query))
	return value.String
}

func (d database) partitions(t testing.TB, table string) string {
	t.Helper()
	return d.scalar(t, "SELECT GROUP_CONCAT(partition_id ORDER BY partition_id SEPARATOR ' ') FROM "+table)
}

func (d database) offsets(t testing.TB) string {
	t.Helper()
	return d.scalar(t, "SELECT GROUP_CONCAT(next_offset ORDER BY partition_id) FROM applied_offset")
}

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func likesTopic() Source {
	return Source{Topic: "like-updates", TopicID: [16]byte{0xca, 0xfe, 15: 1}, Partitions: 4}
}

var (
	oneLike  = []CountDelta{{PostID: 1, Likes: 1}}
	oneHour  = []HourDelta{{Region: "ZZ", Likes: 1}}
	oneLiked = map[string]string{"1": "1 0"} // like_count after oneLike is applied
)

// likeOnce applies one like to a partition at its start position.
func likeOnce(ctx context.Context, s *Store) error {
	return s.Apply(ctx, likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil)
}

// inBackground starts f; wait returns its error.
func inBackground(f func() error) (wait func() error) {
	done := testkit.Later(f)
	return func() error { return <-done }
}

func at(offset int64, seq uint64) Position { return Position{NextOffset: offset, NextSeq: seq} }

// startedStore is a store on a migrated database, with all positions at the start.
func (d database) startedStore(t testing.TB, change ...func(*Options)) *Store {
	t.Helper()
	s := d.migrated(t).store(t, change...)
	requireAt(t, start, (*Store).Position, s, likesTopic(), 0)
	return s
}
