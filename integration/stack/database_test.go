package stack_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/stack"
	"kudos/integration/tier"
)

var shared = stack.NewShared(stack.KafkaOptions{}, stack.DatabaseOptions{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// requireGone checks that a process no longer exists; a zombie that waits for its new parent counts as gone.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		return err != nil || strings.Contains(string(status), "State:\tZ")
	}, patience, 5*time.Millisecond, "process %d still exists", pid)
}

func openDatabase(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	config.Logger = &mysql.NopLogger{} // connections break on purpose here
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

func execute(ctx context.Context, t *testing.T, db sqlx.ExecerContext, query string) {
	t.Helper()
	_, err := db.ExecContext(ctx, query)
	require.NoError(t, err)
}

func rows(ctx context.Context, t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM t").Scan(&n))
	return n
}

func TestMariaDB(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	testDatabase(t, stack.MariaDBForTest(t, stack.DatabaseOptions{ExtraArgs: []string{"--innodb-lock-wait-timeout=7"}}))
}

func TestMySQL(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	testDatabase(t, stack.MySQLForTest(t, stack.DatabaseOptions{ExtraArgs: []string{"--innodb-lock-wait-timeout=7"}}))
}

// Committed rows survive a crash, others do not; a paused server does not respond; Close leaves nothing behind.
func testDatabase(t *testing.T, d *stack.Database) {
	ctx := testkit.Within(t, patience)
	require.NoError(t, d.CreateDatabase(ctx, "it"))
	require.Error(t, d.CreateDatabase(ctx, "it"), "creating an existing database must fail")
	db := openDatabase(t, d.DSN("it"))
	requireSettings(ctx, t, db)

	execute(ctx, t, db, "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY)")
	execute(ctx, t, db, "INSERT INTO t VALUES (1), (2)")
	open, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	execute(ctx, t, open, "INSERT INTO t VALUES (3)")

	pid := d.PID()
	require.NoError(t, d.Kill())
	requireGone(t, pid)
	require.Error(t, open.Commit())
	require.NoError(t, d.Start(ctx))
	require.Equal(t, 2, rows(ctx, t, db), "rows after kill and restart")

	require.NoError(t, d.Pause())
	brief, cancelBrief := context.WithTimeout(ctx, 200*time.Millisecond)
	require.Error(t, db.PingContext(brief))
	cancelBrief()
	require.NoError(t, d.Resume())
	require.Equal(t, 2, rows(ctx, t, db), "rows after pause")

	require.NoError(t, d.DropDatabase(ctx, "it"))

	pid, dir := d.PID(), d.Dir()
	require.NoError(t, d.Close())
	requireGone(t, pid)
	require.NoDirExists(t, dir)
	require.NoError(t, d.Close(), "a second Close")
}

func requireSettings(ctx context.Context, t *testing.T, db *sql.DB) {
	t.Helper()
	var flush, sync, binlog, wait int
	require.NoError(t, db.QueryRowContext(ctx,
		"SELECT @@innodb_flush_log_at_trx_commit, @@sync_binlog, @@log_bin, @@innodb_lock_wait_timeout").
		Scan(&flush, &sync, &binlog, &wait))
	require.Equal(t, []int{1, 1, 1, 7}, []int{flush, sync, binlog, wait},
		"flush at commit, sync binlog, binlog on, lock wait timeout")
}

// Each test gets its own database on the shared server, and a server that a test left down is restarted.
func TestSharedDatabase(t *testing.T) {
	tier.Verify(t)
	d := shared.MariaDB(t)
	var first string
	t.Run("one", func(t *testing.T) {
		first = shared.MariaDB(t).NewDatabase(t)
		execute(t.Context(), t, openDatabase(t, first), "CREATE TABLE t (id INT)")
	})
	require.NoError(t, d.Kill())
	t.Run("two", func(t *testing.T) {
		second := shared.MariaDB(t).NewDatabase(t)
		require.NotEqual(t, first, second)
		require.NoError(t, openDatabase(t, second).PingContext(t.Context()))
	})
	require.Error(t, openDatabase(t, first).PingContext(t.Context()), "the first test's database is dropped")
}

// A replica has what its primary committed before StopReplicating. The old primary can follow the promoted one.
func TestFailover(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	a := stack.MariaDBForTest(t, stack.DatabaseOptions{})
	b := stack.MariaDBForTest(t, stack.DatabaseOptions{ExtraArgs: []string{"--server-id=2"}})
	ctx := testkit.Within(t, patience)
	require.NoError(t, a.CreateDatabase(ctx, "it"))
	onA, onB := openDatabase(t, a.DSN("it")), openDatabase(t, b.DSN("it"))
	execute(ctx, t, onA, "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, note VARCHAR(9))")
	execute(ctx, t, onA, "INSERT INTO t VALUES (1, NULL), (18446744073709551615, 'x')")
	require.NoError(t, b.Follow(ctx, a, "it"))
	require.Equal(t, 2, rows(ctx, t, onB), "rows copied")
	execute(ctx, t, onA, "INSERT INTO t VALUES (2, 'y')")
	replicated := func() bool { return rows(ctx, t, onB) == 3 }
	require.Eventually(t, replicated, patience, 10*time.Millisecond, "rows replicated")

	require.NoError(t, b.StopReplicating(ctx))
	execute(ctx, t, onA, "INSERT INTO t VALUES (3, 'lost')")
	require.NoError(t, a.Kill())
	require.NoError(t, b.Promote(ctx))
	require.Equal(t, 3, rows(ctx, t, onB), "rows on the promoted replica")
	execute(ctx, t, onB, "INSERT INTO t VALUES (4, 'new')")

	require.NoError(t, a.Start(ctx))
	require.NoError(t, a.Follow(ctx, b, "it"))
	require.Equal(t, 4, rows(ctx, t, onA), "rows on the old primary, without the lost commit")
	execute(ctx, t, onB, "INSERT INTO t VALUES (5, 'z')")
	replicatedBack := func() bool { return rows(ctx, t, onA) == 5 }
	require.Eventually(t, replicatedBack, patience, 10*time.Millisecond, "rows replicated back")
}
