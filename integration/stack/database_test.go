package stack_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
	"kudos/integration/tier"
)

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

// A server that was asked to end while paused ends in order, and so does one that runs.
func TestDatabaseStop(t *testing.T) {
	tier.Verify(t)
	d := shared.MariaDB(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	db := openDatabase(t, d.NewDatabase(t))
	_, err := db.ExecContext(ctx, "CREATE TABLE t (id INT)")
	require.NoError(t, err)
	require.NoError(t, d.Stop())
	require.ErrorContains(t, d.Pause(), "does not run")
	require.NoError(t, d.Start(ctx))
	require.NoError(t, d.Pause())
	require.NoError(t, d.Stop())
	require.NoError(t, d.Start(ctx))
	require.Zero(t, rows(ctx, t, db))
}

func TestMySQL(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	testDatabase(t, stack.MySQLForTest(t, stack.DatabaseOptions{ExtraArgs: []string{"--innodb-lock-wait-timeout=7"}}))
}

// Committed rows are there after a crash, others are not; a paused server answers nothing; Close leaves nothing.
func testDatabase(t *testing.T, d *stack.Database) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, d.CreateDatabase(ctx, "it"))
	require.Error(t, d.CreateDatabase(ctx, "it"), "a database that exists is not new")
	db := openDatabase(t, d.DSN("it"))
	requireSettings(ctx, t, db)

	_, err := db.ExecContext(ctx, "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY)")
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, "INSERT INTO t VALUES (1), (2)")
	require.NoError(t, err)
	open, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = open.ExecContext(ctx, "INSERT INTO t VALUES (3)")
	require.NoError(t, err)

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

// requireSettings checks that the server is as durable as production's, and that extra arguments reach it.
func requireSettings(ctx context.Context, t *testing.T, db *sql.DB) {
	t.Helper()
	var flush, sync, binlog, wait int
	require.NoError(t, db.QueryRowContext(ctx, "SELECT @@innodb_flush_log_at_trx_commit, @@sync_binlog, @@log_bin, @@innodb_lock_wait_timeout").
		Scan(&flush, &sync, &binlog, &wait))
	require.Equal(t, []int{1, 1, 1, 7}, []int{flush, sync, binlog, wait}, "flush at commit, sync binlog, binlog on, lock wait timeout")
}

// Each test gets a database of its own on the shared server, and a server that a test left down is started again.
func TestSharedDatabase(t *testing.T) {
	tier.Verify(t)
	d := shared.MariaDB(t)
	var first string
	t.Run("one", func(t *testing.T) {
		first = shared.MariaDB(t).NewDatabase(t)
		db := openDatabase(t, first)
		_, err := db.ExecContext(t.Context(), "CREATE TABLE t (id INT)")
		require.NoError(t, err)
	})
	require.NoError(t, d.Kill())
	t.Run("two", func(t *testing.T) {
		second := shared.MariaDB(t).NewDatabase(t)
		require.NotEqual(t, first, second)
		require.NoError(t, openDatabase(t, second).PingContext(t.Context()))
	})
	require.Error(t, openDatabase(t, first).PingContext(t.Context()), "the first test's database is dropped")
}

// The thread that starts a server may end, as threads do; the server must not take that for the end of the process.
func TestServerOutlivesTheThreadThatStartedIt(t *testing.T) {
	tier.Verify(t)
	stack.Require(t, stack.NeedMariaDB)
	type result struct {
		d   *stack.Database
		err error
	}
	started := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		d, err := stack.StartMariaDB(t.Context(), stack.DatabaseOptions{})
		started <- result{d, err}
	}()
	r := <-started
	require.NoError(t, r.err)
	defer r.d.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	db := openDatabase(t, r.d.DSN(""))
	for range 20 {
		require.NoError(t, db.PingContext(ctx))
	}
	require.True(t, r.d.Running())
}

// orphanVariable makes this test binary start a server, say its process id and address, and wait to be killed.
const orphanVariable = "KUDOS_TEST_ORPHAN"

func orphan() {
	d, err := stack.StartMariaDB(context.Background(), stack.DatabaseOptions{Dir: os.Getenv(orphanVariable)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(d.PID())
	<-d.Done() // for ever, as far as this process is concerned
	os.Exit(1)
}

// A process that is killed, and so cannot close anything, takes its servers with it.
func TestServersDieWithTheirParent(t *testing.T) {
	tier.Verify(t)
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties a child's life to its parent's")
	}
	stack.Require(t, stack.NeedMariaDB)
	dir, err := os.MkdirTemp("", "kudos-orphan-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755), "the database's account shall be able to enter it")
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), orphanVariable+"="+dir)
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	var pid int
	_, err = fmt.Sscan(line, &pid)
	require.NoError(t, err)
	require.DirExists(t, fmt.Sprintf("/proc/%d", pid))

	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	requireGone(t, pid)
}
