//go:build !nodev

package dev

import (
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"kudos/integration/testrun"
	"kudos/sql"
)

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// startDatabase is an embedded server with one table of counts, for one test.
func startDatabase(t *testing.T, change ...func(*DatabaseOptions)) *Database {
	t.Helper()
	o := DefaultDatabaseOptions()
	o.Address = "127.0.0.1:0"
	for _, f := range change {
		f(&o)
	}
	d := NewDatabase(o, discardLog())
	require.NoError(t, d.Start())
	testrun.Start(t, "the database", time.Minute, d.Run)
	return d
}

// open is a pool of its own, as one client has it.
func open(t *testing.T, d *Database, params string) *stdsql.DB {
	t.Helper()
	db, err := stdsql.Open("mysql", d.DSN()+"?interpolateParams=true"+params)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func must(t *testing.T, db interface {
	ExecContext(context.Context, string, ...any) (stdsql.Result, error)
}, query string, args ...any) int64 {
	t.Helper()
	result, err := db.ExecContext(t.Context(), query, args...)
	require.NoError(t, err, query)
	changed, err := result.RowsAffected()
	require.NoError(t, err)
	return changed
}

func scalar(t *testing.T, db interface {
	QueryRowContext(context.Context, string, ...any) *stdsql.Row
}, query string, args ...any) int64 {
	t.Helper()
	var n int64
	require.NoError(t, db.QueryRowContext(t.Context(), query, args...).Scan(&n), query)
	return n
}

func begin(t *testing.T, db *stdsql.DB) *stdsql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &stdsql.TxOptions{Isolation: stdsql.LevelReadCommitted})
	require.NoError(t, err)
	return tx
}

const createCounts = "CREATE TABLE counts (post_id BIGINT UNSIGNED NOT NULL, likes BIGINT NOT NULL, dislikes BIGINT NOT NULL," +
	" updated_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), PRIMARY KEY (post_id))"

const addCounts = " ON DUPLICATE KEY UPDATE likes = likes + VALUES(likes), dislikes = dislikes + VALUES(dislikes), updated_at = UTC_TIMESTAMP(3)"

func TestDatabaseTransaction(t *testing.T) {
	d := startDatabase(t)
	db := open(t, d, "")
	must(t, db, createCounts)

	tx := begin(t, db)
	require.EqualValues(t, 2, must(t, tx, "INSERT INTO counts (post_id, likes, dislikes) VALUES (18446744073709551615, 5, 0), (2, -1, 1)"+addCounts))
	require.EqualValues(t, -1, scalar(t, tx, "SELECT likes FROM counts WHERE post_id = 2 FOR UPDATE"))
	require.NoError(t, tx.Rollback())
	require.Zero(t, scalar(t, db, "SELECT COUNT(*) FROM counts"), "a rollback leaves nothing")

	tx = begin(t, db)
	must(t, tx, "INSERT INTO counts (post_id, likes, dislikes) VALUES (1, 5, 0)"+addCounts)
	must(t, tx, "INSERT INTO counts (post_id, likes, dislikes) VALUES (1, -2, 3), (4, 1, 0)"+addCounts)
	require.NoError(t, tx.Commit())
	require.EqualValues(t, 3, scalar(t, db, "SELECT likes FROM counts WHERE post_id = 1"))
	require.EqualValues(t, 3, scalar(t, db, "SELECT dislikes FROM counts WHERE post_id = 1"))

	const swap = "UPDATE counts SET likes = ? WHERE post_id = 1 AND likes = ?"
	require.EqualValues(t, 1, must(t, db, swap, 10, 3), "a compare-and-swap that holds")
	require.Zero(t, must(t, db, swap, 11, 3), "one that does not")

	tx = begin(t, db)
	require.EqualValues(t, 1, must(t, tx, swap, 20, 10))
	_, err := tx.Exec("INSERT INTO counts (post_id, likes, dislikes) VALUES (7, 1, 1), (1, 1, 1)")
	var duplicate *mysql.MySQLError
	require.ErrorAs(t, err, &duplicate)
	require.EqualValues(t, 1062, duplicate.Number)
	require.NoError(t, tx.Rollback())
	require.EqualValues(t, 10, scalar(t, db, "SELECT likes FROM counts WHERE post_id = 1"))
	require.EqualValues(t, 2, scalar(t, db, "SELECT COUNT(*) FROM counts"))
}

func TestDatabaseReadsBesideAWriter(t *testing.T) {
	d := startDatabase(t)
	writer, reader := open(t, d, ""), open(t, d, "")
	must(t, writer, createCounts)
	reader.SetMaxOpenConns(1)
	must(t, writer, "INSERT INTO counts (post_id, likes, dislikes) VALUES (1, 1, 0), (2, 0, 0)")

	tx := begin(t, writer)
	must(t, tx, "UPDATE counts SET likes = 2 WHERE post_id = 1")
	require.EqualValues(t, 1, scalar(t, reader, "SELECT likes FROM counts WHERE post_id = 1"), "reads do not wait, and see what is committed")
	for _, wrong := range []string{"SELECT nothing FROM counts", "SELECT (SELECT likes, dislikes FROM counts)"} {
		_, err := reader.ExecContext(t.Context(), wrong)
		require.Error(t, err)
	}
	require.NoError(t, tx.Commit())
	require.EqualValues(t, 2, scalar(t, reader, "SELECT likes FROM counts WHERE post_id = 1"), "also after a statement that failed")
	require.EqualValues(t, 2, scalar(t, writer, "SELECT likes FROM counts WHERE post_id = 1"))
}

// Without the locks this loses most increments, as the library alone does.
func TestDatabaseLosesNothing(t *testing.T) {
	d := startDatabase(t)
	db := open(t, d, "&multiStatements=true")
	must(t, db, createCounts)
	must(t, db, "INSERT INTO counts (post_id, likes, dislikes) VALUES (1, 0, 0)")

	const clients, rounds = 8, 20
	ctx, stop := context.WithCancel(t.Context())
	readers := sync.WaitGroup{}
	readers.Go(func() {
		for ctx.Err() == nil {
			_, _ = db.ExecContext(ctx, "SELECT likes FROM counts")
		}
	})
	var writers sync.WaitGroup
	failed := make(chan error, clients)
	for i := range clients {
		writers.Go(func() {
			for range rounds {
				if err := increment(db, i%4); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	writers.Wait()
	stop()
	readers.Wait()
	require.Empty(t, failed)
	require.EqualValues(t, clients*rounds, scalar(t, db, "SELECT likes FROM counts"))
}

// increment adds 1 in one of the ways that a client has.
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

func TestDatabaseLockWait(t *testing.T) {
	d := startDatabase(t, func(o *DatabaseOptions) { o.LockWait = 100 * time.Millisecond })
	first, second := open(t, d, ""), open(t, d, "&innodb_lock_wait_timeout=1") // which MySQL lets a session set
	must(t, first, createCounts)
	tx := begin(t, first)

	_, err := second.Exec("INSERT INTO counts (post_id, likes, dislikes) VALUES (1, 1, 1)")
	var timeout *mysql.MySQLError
	require.ErrorAs(t, err, &timeout)
	require.EqualValues(t, 1205, timeout.Number)

	require.NoError(t, tx.Commit())
	must(t, second, "INSERT INTO counts (post_id, likes, dislikes) VALUES (1, 1, 1)")

	// A read begins a transaction where autocommit is off. Its end would write back
	// what it has read.
	conn, err := first.Conn(t.Context())
	require.NoError(t, err)
	must(t, conn, "SET autocommit = 0")
	scalar(t, conn, "SELECT likes FROM counts")
	_, err = second.Exec("UPDATE counts SET likes = 5")
	require.ErrorAs(t, err, &timeout)
	require.EqualValues(t, 1205, timeout.Number)
	require.NoError(t, conn.Close())
}

func TestDatabaseConnectionThatGoesGivesItsLockBack(t *testing.T) {
	d := startDatabase(t)
	first, second := open(t, d, ""), open(t, d, "")
	must(t, first, createCounts)
	conn, err := first.Conn(t.Context())
	require.NoError(t, err)
	for _, statement := range []string{"SET autocommit = 0", "INSERT INTO counts (post_id, likes, dislikes) VALUES (1, 1, 1)"} {
		_, err = conn.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	require.ErrorIs(t, conn.Raw(func(any) error { return driver.ErrBadConn }), driver.ErrBadConn)
	_ = conn.Close()
	must(t, second, "INSERT INTO counts (post_id, likes, dislikes) VALUES (2, 1, 1)")
	require.EqualValues(t, 2, scalar(t, second, "SELECT post_id FROM counts"), "what was not committed is gone")
}

var migrations = fstest.MapFS{
	"1_counts.sql": {Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\n" + strings.Replace(createCounts, "TABLE", "TABLE IF NOT EXISTS", 1) + " ENGINE = InnoDB;\n")},
	"2_more.sql":   {Data: []byte("-- +goose Up\nCREATE TABLE more (t VARCHAR(249) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, p INT NOT NULL, PRIMARY KEY (t, p));\n")},
}

func TestDatabaseTakesGooseMigrations(t *testing.T) {
	d := startDatabase(t)
	db := open(t, d, "&parseTime=true")
	provider, err := goose.NewProvider(goose.DialectMySQL, db, migrations, goose.WithDisableGlobalRegistry(true))
	require.NoError(t, err)
	done, err := provider.Up(t.Context())
	require.NoError(t, err)
	require.Len(t, done, 2)
	done, err = provider.Up(t.Context())
	require.NoError(t, err)
	require.Empty(t, done)
	require.EqualValues(t, 2, scalar(t, db, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ('counts', 'more')"))
	require.EqualValues(t, 1, scalar(t, db, "SELECT GET_LOCK('migrate', 1)"))
}

func TestDatabaseTakesCommandLineClient(t *testing.T) {
	client, err := exec.LookPath("mariadb")
	if err != nil {
		const missing = "needs the mariadb command-line client (Debian: apt-get install mariadb-client)"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	d := startDatabase(t)
	must(t, open(t, d, ""), createCounts)
	host, port, err := net.SplitHostPort(d.Address())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, client, "-h"+host, "-P"+port, "-uroot", databaseName, "--batch", "-e",
		"insert into counts (post_id, likes, dislikes) values (42, 7, 1), (43, 8, 0); select post_id, likes from counts order by 2 desc limit 10; show tables").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "post_id\tlikes\n43\t8\n42\t7\nTables_in_kudos\ncounts\n", string(out))
}

func TestDatabaseEndsWithAnOpenTransaction(t *testing.T) {
	o := DefaultDatabaseOptions()
	o.Address = "127.0.0.1:0"
	d := NewDatabase(o, discardLog())
	require.NoError(t, d.Start())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	begin(t, open(t, d, ""))
	cancel()
	require.NoError(t, <-ended)
	_, err := net.Dial("tcp", d.Address())
	require.Error(t, err)
}

func TestDatabaseNamesTheAddressItCannotHave(t *testing.T) {
	d := startDatabase(t)
	o := DefaultDatabaseOptions()
	o.Address = d.Address()
	require.ErrorContains(t, NewDatabase(o, discardLog()).Start(), d.Address())
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
	} {
		require.Equal(t, want, writes(query), query)
	}
}

// BenchmarkDatabaseUpsert is what one batch of the applier costs, by posts in the
// batch and posts in the table.
func BenchmarkDatabaseUpsert(b *testing.B) {
	for _, size := range []struct{ rows, table int }{{1, 1_000}, {100, 1_000}, {1_000, 1_000}, {5_000, 5_000}, {1_000, 10_000}} {
		b.Run(fmt.Sprintf("rows=%d/table=%d", size.rows, size.table), func(b *testing.B) {
			o := DefaultDatabaseOptions()
			o.Address = "127.0.0.1:0"
			d := NewDatabase(o, discardLog())
			require.NoError(b, d.Start())
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- d.Run(ctx) }()
			defer func() { cancel(); require.NoError(b, <-ended) }()
			db, err := stdsql.Open("mysql", d.DSN())
			require.NoError(b, err)
			defer db.Close()
			_, err = db.Exec(createCounts)
			require.NoError(b, err)
			upsert := func(from, n int) {
				text := []byte("INSERT INTO counts (post_id, likes, dislikes) VALUES ")
				for i := range n {
					text = fmt.Appendf(text, "%s(%d,1,0)", map[bool]string{true: "", false: ","}[i == 0], from+i)
				}
				_, err := db.Exec(string(append(text, addCounts...)))
				require.NoError(b, err)
			}
			upsert(1, size.table)
			for b.Loop() {
				upsert(1, size.rows)
			}
		})
	}
}

// The store of kudos, as production has it, several partitions at a time.
func TestDatabaseServesTheStore(t *testing.T) {
	d := startDatabase(t)
	o := sql.DefaultOptions()
	o.DSN = d.DSN()
	require.NoError(t, sql.Migrate(t.Context(), o, discardLog()))
	store, err := sql.New(o, discardLog())
	require.NoError(t, err)
	defer store.Close()

	const partitions, ranges = 4, 20
	source := sql.Source{Topic: "like-updates", TopicID: [16]byte{1}, Partitions: partitions}
	apply := func(partition int32) error {
		at, err := store.Position(t.Context(), source, partition)
		if err != nil {
			return err
		}
		for range ranges {
			next := sql.Position{NextOffset: at.NextOffset + 2, NextSeq: at.NextSeq + 1}
			counts := []sql.CountDelta{{PostID: 1, Likes: 1}, {PostID: uint64(10 + partition), Likes: 1}}
			hours := []sql.HourDelta{{Hour: 480_000, Region: "DE", Likes: 2}}
			if err := store.Apply(t.Context(), source, partition, at, next, counts, hours); err != nil {
				return err
			}
			at = next
		}
		return nil
	}
	var group errgroup.Group
	for p := range int32(partitions) {
		group.Go(func() error { return apply(p) })
	}
	require.NoError(t, group.Wait())
	db := open(t, d, "")
	require.EqualValues(t, partitions*ranges, scalar(t, db, "SELECT `count` FROM like_count WHERE post_id = 1"))
	require.EqualValues(t, 2*partitions*ranges, scalar(t, db, "SELECT CAST(SUM(likes) AS SIGNED) FROM like_hourly"))
	require.EqualValues(t, 2*partitions*ranges, scalar(t, db, "SELECT CAST(SUM(next_offset) AS SIGNED) FROM applied_offset"))
}
