//go:build !nodev

// Package devtest gives each test its own embedded broker and a database in one embedded server. Only tests import it.
package devtest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"kudos/dev"
	"kudos/dev/testkit"
	"kudos/sql"
	"kudos/stream/kafka"
)

// RealServer names the variable with the DSN of a real server, whose user may create databases, to use instead.
const RealServer = "KUDOS_TEST_MYSQL_DSN"

// embedded is shared by all tests, which run concurrently: go-mysql-server cannot be started twice at the same time.
var embedded struct {
	dsn string
	// migrating is held by one test at a time: GET_LOCK, while waiting, blocks all other embedded statements.
	migrating sync.Mutex
}

// Main starts the database server, runs the tests of a package and returns their exit code.
func Main(m *testing.M) int {
	database, err := dev.StartDatabase("127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- database.Run(ctx) }()
	embedded.dsn = database.DSN()
	code := m.Run()
	cancel()
	if err := <-done; err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Log returns the logger of testkit.
func Log() *slog.Logger { return testkit.Log() }

// Broker starts an empty broker for this test.
func Broker(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, kafka.Options) {
	broker, err := kfake.NewCluster(append(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...),
		kfake.GroupMinSessionTimeout(time.Second),
		// kfake compacts uncommitted records too: it must never compact.
		kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "100000000000"}))...)
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	kafka := kafka.DefaultOptions()
	kafka.Brokers = broker.ListenAddrs()
	return broker, kafka
}

// Database creates an empty database; Migrate creates its tables. Tests inspect and break it through the connection.
func Database(t testing.TB) (sql.Options, *sqlx.DB) {
	o := sql.DefaultOptions()
	dsn := os.Getenv(RealServer)
	if dsn == "" {
		dsn, o.MaxOpenConns = embedded.dsn, 1
	}
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err, RealServer)
	config.DBName, config.ReadTimeout = "", time.Minute // a server may wait a day for an open transaction
	admin, err := sqlx.Connect("mysql", config.FormatDSN())
	require.NoError(t, err, RealServer)
	config.DBName = fmt.Sprintf("kudos_test_%08x", rand.Uint32())
	admin.MustExec("CREATE DATABASE " + config.DBName)
	t.Cleanup(func() {
		_, err := admin.Exec("DROP DATABASE " + config.DBName)
		require.NoError(t, err, "is a transaction on it still open?")
		require.NoError(t, admin.Close())
	})
	o.DSN = config.FormatDSN()
	db, err := sqlx.Open("mysql", o.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return o, db
}

// Migrate creates the tables of the database, or of all shards.
func Migrate(t testing.TB, o sql.Options) {
	embedded.migrating.Lock()
	defer embedded.migrating.Unlock()
	require.NoError(t, sql.Migrate(t.Context(), o, Log()))
}

// Patience is how long a WaitFor may see no change before it fails.
const Patience = 60 * time.Second

// WaitFor waits until condition holds. The condition also returns the current state: while it changes, the wait
// continues, up to ten times Patience, since a busy machine is slow, not stuck. more, unless nil, is logged before the
// test fails.
func WaitFor(t testing.TB, what string, condition func() (ok bool, now any), more func() string) {
	t.Helper()
	if more == nil {
		more = func() string { return "" }
	}
	began := time.Now()
	changed, last := began, ""
	for pause := 5 * time.Millisecond; ; pause = min(pause*3/2, 100*time.Millisecond) {
		ok, now := condition()
		if ok {
			return
		}
		if text := fmt.Sprint(now); text != last {
			changed, last = time.Now(), text
		}
		if time.Since(changed) > Patience || time.Since(began) > 10*Patience {
			t.Fatalf("waited %s for %s; unchanged for %s: %s\n%s",
				time.Since(began).Round(time.Second), what, time.Since(changed).Round(time.Second), last, more())
		}
		select {
		case <-time.After(pause):
		case <-t.Context().Done():
			t.Fatalf("the test ended while waiting for %s; last state: %s", what, last)
		}
	}
}

// WaitReadiness waits until the readiness error contains all words.
func WaitReadiness(t testing.TB, ready func() error, words ...string) {
	t.Helper()
	WaitFor(t, "the readiness error to contain "+strings.Join(words, ", "), func() (bool, any) {
		err := ready()
		missing := func(word string) bool { return !strings.Contains(fmt.Sprint(err), word) }
		return !slices.ContainsFunc(words, missing), err
	}, func() string { return "" })
}

// WaitReady waits until ready returns nil.
func WaitReady(t testing.TB, ready func() error) {
	t.Helper()
	WaitFor(t, "readiness", func() (bool, any) { err := ready(); return err == nil, err }, func() string { return "" })
}
