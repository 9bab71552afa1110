//go:build !nodev

package dev

import (
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"kudos/dev/testkit"
	"kudos/integration/testrun"
	"kudos/integration/tier"
)

func newDatabase(t testing.TB) (*Database, *stdsql.DB) {
	t.Helper()
	d, err := StartDatabase(free)
	require.NoError(t, err)
	testrun.Start(t, "the database", time.Minute, d.Run)
	return d, open(t, d, "")
}

// open returns a separate connection pool, like another client.
func open(t testing.TB, d *Database, params string) *stdsql.DB {
	t.Helper()
	db, err := stdsql.Open("mysql", d.DSN()+"?interpolateParams=true"+params)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

type queryer interface {
	ExecContext(context.Context, string, ...any) (stdsql.Result, error)
	QueryRowContext(context.Context, string, ...any) *stdsql.Row
}

// must returns how many rows changed.
func must(t testing.TB, db queryer, query string, args ...any) int64 {
	t.Helper()
	result, err := db.ExecContext(t.Context(), query, args...)
	require.NoError(t, err, query)
	changed, err := result.RowsAffected()
	require.NoError(t, err)
	return changed
}

func scalar(t *testing.T, db queryer, query string, args ...any) (n int64) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), query, args...).Scan(&n), query)
	return n
}

func likes(t *testing.T, db queryer, post int) int64 {
	t.Helper()
	return scalar(t, db, "SELECT likes FROM counts WHERE post_id = ?", post)
}

func begin(t *testing.T, db *stdsql.DB) *stdsql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &stdsql.TxOptions{Isolation: stdsql.LevelReadCommitted})
	require.NoError(t, err)
	return tx
}

const (
	createCounts = "CREATE TABLE counts (post_id BIGINT UNSIGNED NOT NULL, likes BIGINT NOT NULL," +
		" dislikes BIGINT NOT NULL, updated_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)," +
		" PRIMARY KEY (post_id))"
	insertCounts = "INSERT INTO counts (post_id, likes, dislikes) VALUES "
	addCounts    = " ON DUPLICATE KEY UPDATE likes = likes + VALUES(likes), dislikes = dislikes + VALUES(dislikes)," +
		" updated_at = UTC_TIMESTAMP(3)"
)

func requireError(t *testing.T, number int, err error) {
	t.Helper()
	var e *mysql.MySQLError
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, number, e.Number)
}

func TestDatabaseTransaction(t *testing.T) {
	_, db := newDatabase(t)
	must(t, db, createCounts)

	tx := begin(t, db)
	require.EqualValues(t, 2, must(t, tx, insertCounts+"(18446744073709551615, 5, 0), (2, -1, 1)"+addCounts))
	require.EqualValues(t, -1, scalar(t, tx, "SELECT likes FROM counts WHERE post_id = 2 FOR UPDATE"))
	require.NoError(t, tx.Rollback())
	require.Zero(t, scalar(t, db, "SELECT COUNT(*) FROM counts"), "a rollback leaves nothing")

	tx = begin(t, db)
	must(t, tx, insertCounts+"(1, 5, 0)"+addCounts)
	must(t, tx, insertCounts+"(1, -2, 3), (4, 1, 0)"+addCounts)
	require.NoError(t, tx.Commit())
	require.EqualValues(t, 3, likes(t, db, 1))
	require.EqualValues(t, 3, scalar(t, db, "SELECT dislikes FROM counts WHERE post_id = 1"))

	const swap = "UPDATE counts SET likes = ? WHERE post_id = 1 AND likes = ?"
	require.EqualValues(t, 1, must(t, db, swap, 10, 3), "a compare-and-swap that holds")
	require.Zero(t, must(t, db, swap, 11, 3), "a compare-and-swap that fails")

	tx = begin(t, db)
	require.EqualValues(t, 1, must(t, tx, swap, 20, 10))
	_, err := tx.Exec(insertCounts + "(7, 1, 1), (1, 1, 1)")
	requireError(t, 1062, err)
	require.NoError(t, tx.Rollback())
	require.EqualValues(t, 10, likes(t, db, 1))
	require.EqualValues(t, 2, scalar(t, db, "SELECT COUNT(*) FROM counts"))
}

func TestDatabaseReadsDuringAWrite(t *testing.T) {
	d, writer := newDatabase(t)
	reader := open(t, d, "")
	must(t, writer, createCounts)
	reader.SetMaxOpenConns(1)
	must(t, writer, insertCounts+"(1, 1, 0), (2, 0, 0)")

	tx := begin(t, writer)
	must(t, tx, "UPDATE counts SET likes = 2 WHERE post_id = 1")
	require.EqualValues(t, 1, likes(t, reader, 1), "reads do not block and see committed data")
	for _, wrong := range []string{"SELECT nothing FROM counts", "SELECT (SELECT likes, dislikes FROM counts)"} {
		_, err := reader.ExecContext(t.Context(), wrong)
		require.Error(t, err)
	}
	require.NoError(t, tx.Commit())
	require.EqualValues(t, 2, likes(t, reader, 1), "also after a statement that failed")
	require.EqualValues(t, 2, likes(t, writer, 1))
}

// Without the locks this loses most increments, like the library alone.
func TestDatabaseLosesNothing(t *testing.T) {
	d, _ := newDatabase(t)
	db := open(t, d, "&multiStatements=true")
	must(t, db, createCounts)
	must(t, db, insertCounts+"(1, 0, 0)")

	const clients, rounds = 8, 20
	ctx, stop := context.WithCancel(t.Context())
	var reader sync.WaitGroup
	reader.Go(func() {
		for ctx.Err() == nil {
			_, _ = db.ExecContext(ctx, "SELECT likes FROM counts")
		}
	})
	var writers errgroup.Group
	for i := range clients {
		writers.Go(func() error {
			for range rounds {
				if err := increment(db, i%4); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := writers.Wait()
	stop()
	reader.Wait()
	require.NoError(t, err)
	require.EqualValues(t, clients*rounds, scalar(t, db, "SELECT likes FROM counts"))
}

// increment adds 1 in one of the ways that clients use.
func increment(db *stdsql.DB, way int) error {
	const statement = "UPDATE counts SET likes = likes + 1 WHERE post_id = 1"
	switch way {
	case 0:
		_, err := db.Exec(statement)
		return err
	case 1:
		_, err := db.Exec("BEGIN; " + statement + "; COMMIT")
		return err
	case 2:
		prepared, err := db.Prepare("UPDATE counts SET likes = likes + ? WHERE post_id = 1")
		if err != nil {
			return err
		}
		_, err = prepared.Exec(1)
		return errors.Join(err, prepared.Close())
	}
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	if _, err = tx.Exec(statement); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// The server does not enforce the limit: clients do that ask for it.
func TestDatabaseAsksForSmallStatements(t *testing.T) {
	d, db := newDatabase(t)
	require.EqualValues(t, maxPacket, scalar(t, db, "SELECT @@max_allowed_packet"))
	must(t, db, createCounts)
	batch := insertCounts + strings.Repeat("(1, 1, 0), ", maxPacket/10) + "(1, 1, 0)" + addCounts
	_, err := open(t, d, "&maxAllowedPacket=0").ExecContext(t.Context(), batch)
	require.ErrorIs(t, err, mysql.ErrPktTooLarge)
	must(t, db, batch) // the default of the driver is 64 MiB
	require.EqualValues(t, maxPacket/10+1, likes(t, db, 1))
}

func TestDatabaseLockWait(t *testing.T) {
	d, err := startDatabase(free, 100*time.Millisecond)
	require.NoError(t, err)
	testrun.Start(t, "the database", time.Minute, d.Run)
	first, second := open(t, d, ""), open(t, d, "&innodb_lock_wait_timeout=1") // as MySQL allows in a session
	must(t, first, createCounts)
	tx := begin(t, first)
	_, err = second.Exec(insertCounts + "(1, 1, 1)")
	requireError(t, 1205, err)
	require.NoError(t, tx.Commit())
	must(t, second, insertCounts+"(1, 1, 1)")

	// With autocommit off, a read begins a transaction, whose end would write back what it has read.
	conn, err := first.Conn(t.Context())
	require.NoError(t, err)
	must(t, conn, "SET autocommit = 0")
	scalar(t, conn, "SELECT likes FROM counts")
	_, err = second.Exec("UPDATE counts SET likes = 5")
	requireError(t, 1205, err)
	require.NoError(t, conn.Close())
}

func TestClosedConnectionReleasesItsLock(t *testing.T) {
	d, first := newDatabase(t)
	second := open(t, d, "")
	must(t, first, createCounts)
	conn, err := first.Conn(t.Context())
	require.NoError(t, err)
	must(t, conn, "SET autocommit = 0")
	must(t, conn, insertCounts+"(1, 1, 1)")
	require.ErrorIs(t, conn.Raw(func(any) error { return driver.ErrBadConn }), driver.ErrBadConn)
	_ = conn.Close()
	must(t, second, insertCounts+"(2, 1, 1)")
	require.EqualValues(t, 2, scalar(t, second, "SELECT post_id FROM counts"), "uncommitted changes are rolled back")
}

func TestDatabaseServesTheCommandLineClient(t *testing.T) {
	tier.NeedPrograms(t, "mariadb")
	d, db := newDatabase(t)
	must(t, db, createCounts)
	host, port, err := net.SplitHostPort(d.Address())
	require.NoError(t, err)
	const queries = "insert into counts (post_id, likes, dislikes) values (42, 7, 1), (43, 8, 0);" +
		" select post_id, likes from counts order by 2 desc limit 10; show tables"
	out, err := exec.CommandContext(testkit.Context(t), "mariadb",
		"-h"+host, "-P"+port, "-uroot", databaseName, "--batch", "-e", queries).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "post_id\tlikes\n43\t8\n42\t7\nTables_in_kudos\ncounts\n", string(out))
}

func TestDatabaseEndsWithAnOpenTransaction(t *testing.T) {
	d, err := StartDatabase(free)
	require.NoError(t, err)
	stop := testrun.Start(t, "the database", time.Minute, d.Run)
	begin(t, open(t, d, ""))
	stop()
	_, err = net.Dial("tcp", d.Address())
	require.Error(t, err)
}

func TestDatabaseNamesTheAddressInUse(t *testing.T) {
	d, _ := newDatabase(t)
	for _, address := range []string{d.Address(), "localhost"} {
		_, err := StartDatabase(address)
		require.ErrorContains(t, err, address)
	}
}

func TestWrites(t *testing.T) {
	for query, want := range map[string]bool{
		"SELECT 1":                         false,
		" (select 1)":                      false,
		"/* by hand */ -- x\n# y\n show t": false,
		"SET autocommit = 0":               false,
		"COMMIT":                           false,
		"":                                 false,
		"-- nothing":                       false,
		"START TRANSACTION READ ONLY":      true,
		"begin":                            true,
		"insert into t values (1)":         true,
		"WITH x AS (SELECT 1) DELETE":      true,
		"/*!40000 ALTER TABLE t */":        true,
		"selected":                         true,
		"/**/ (/* M */ select 1)":          false,
		"/*M!100100 ALTER TABLE t */":      true,
		"/* a */ DELETE FROM t /* b */ ":   true,
		"/**/ INSERT t /***/ SELECT 1":     true,
	} {
		require.Equal(t, want, writes(query), query)
	}
}

// TestDatabaseMatchesRegularExpressions checks the package that replaces go-mysql-server's regular expressions.
func TestDatabaseMatchesRegularExpressions(t *testing.T) {
	_, db := newDatabase(t)
	for _, c := range []struct{ expression, want string }{
		{`'kudos' REGEXP '^k.*s$'`, "1"},
		{`REGEXP_LIKE('kudos', 'K', 'i')`, "1"},
		{`'kudos' RLIKE '^u'`, "0"},
		{`'kudos' NOT REGEXP '^k'`, "0"},
		{`REGEXP_LIKE('kudos', 'K', 'c')`, "0"},
		{`REGEXP_LIKE('a\nb', '^b', 'm')`, "1"},
		{`REGEXP_LIKE('a\nb', 'a.b')`, "0"},
		{`REGEXP_LIKE('a\nb', 'a.b', 'n')`, "1"},
		{`REGEXP_INSTR('äbab', 'b')`, "2"},
		{`REGEXP_INSTR('äbab', 'b', 3)`, "4"},
		{`REGEXP_INSTR('äbab', 'ab', 1, 1, 1)`, "5"},
		{`REGEXP_INSTR('äbab', 'b', 1, 3)`, "0"},
		{`REGEXP_SUBSTR('one two three', '[a-z]+', 1, 2)`, "two"},
		{`REGEXP_SUBSTR('one two three', '[a-z]+', 5)`, "two"},
		{`COALESCE(REGEXP_SUBSTR('one', '[0-9]+'), 'none')`, "none"},
		{`REGEXP_REPLACE('one two', '[a-z]+', 'x')`, "x x"},
		{`REGEXP_REPLACE('äbc äbc', 'b', 'x', 4)`, "äbc äxc"},
		{`REGEXP_REPLACE('one two three', '[a-z]+', 'x', 1, 2)`, "one x three"},
		{`REGEXP_REPLACE('one two', '([a-z])([a-z]+)', '$2a$1')`, "neao woat"},
		{`REGEXP_REPLACE('ab', '(x)?b', '[$1]')`, "a[]"},
	} {
		var got string
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT "+c.expression).Scan(&got), c.expression)
		require.Equal(t, c.want, got, c.expression)
	}
	_, err := db.ExecContext(t.Context(), "SELECT 'kudos' REGEXP '('")
	require.Error(t, err)
}
