package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"kudos/integration/mysqlproxy"
	"kudos/integration/oracle"
	"kudos/integration/stack"
)

// This file is the faults of MariaDB, and the failover to its replica.

func killMySQL(ctx context.Context, f *fault) error {
	primary := f.sys.database.Load().primary
	f.on("%v at %s", primary, primary.Address())
	defer f.away()()
	if err := primary.Kill(); err != nil {
		return err
	}
	return errors.Join(wait(ctx, f.between(0, 2*time.Second)), primary.Start(ctx))
}

func pauseMySQL(ctx context.Context, f *fault) error {
	primary := f.sys.database.Load().primary
	d := f.between(300*time.Millisecond, 7*time.Second) // the read timeout is 4 s
	f.on("%v for %v", primary, d.Round(time.Millisecond))
	defer f.away()()
	return pause(ctx, d, primary.Server)
}

func failover(ctx context.Context, f *fault) error {
	primary := f.sys.database.Load().primary
	f.on("%v at %s", primary, primary.Address())
	lost, err := f.sys.failOver(ctx, f.between(0, 2*time.Second), f.away)
	switch {
	case err != nil:
		return fmt.Errorf("failing MySQL over: %w", err)
	case lost == 0:
		return missed("the replica lacked nothing: no update was applied meanwhile")
	}
	f.show("applied updates lost by a MySQL failover", int64(lost))
	return nil
}

// lockRows holds locks like a forgotten session: on the counts of popular posts, or on positions.
func lockRows(ctx context.Context, f *fault) error {
	db := f.sys.database.Load().direct
	query := "SELECT post_id FROM like_count WHERE post_id <= 200 FOR UPDATE"
	if f.random.IntN(4) == 0 {
		query = "SELECT partition_id FROM applied_offset FOR UPDATE"
	}
	d := f.between(time.Second, 5*time.Second)
	f.on("%s for %v", query, d.Round(time.Millisecond))
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return missed("MySQL did not start a transaction: %v", err)
	}
	defer tx.Rollback() //nolint:errcheck // the end of the fault; what was locked is free when the session is gone, too
	if _, err := tx.ExecContext(ctx, query); err != nil {
		return missed("the rows could not be locked: %v", err)
	}
	defer f.away()()
	waited, end := int64(0), time.Now().Add(d)
	for time.Now().Before(end) {
		var n int64
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := db.QueryRowContext(asking,
			"SELECT COUNT(DISTINCT requesting_trx_id) FROM information_schema.innodb_lock_waits").Scan(&n)
		cancel()
		if err == nil { // otherwise MySQL is down
			waited = max(waited, n)
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	if waited == 0 {
		return missed("no transaction waited for the locks")
	}
	f.show("transactions that waited for locks (maximum per fault, summed)", waited)
	return nil
}

// loseReplies breaks connections at the worst moment: the server has committed and replied, unknown to the processor.
func loseReplies(ctx context.Context, f *fault) error {
	n := 1 + f.random.Int64N(4)
	f.on("%d COMMITs", n)
	var seen, lost atomic.Int64
	f.sys.network.commits.On(func(query string) mysqlproxy.Decision {
		if !strings.EqualFold(query, "COMMIT") || seen.Add(1) > n {
			return mysqlproxy.Decision{}
		}
		return mysqlproxy.CutAfter(func(ok bool) {
			if ok { // otherwise the connection just breaks
				lost.Add(1)
			}
		})
	})
	err := waitUntil(ctx, 8*time.Second, "COMMITs", func() bool { return lost.Load() == n })
	f.sys.network.commits.On(nil)
	if lost.Load() == 0 {
		return missed("%v", err)
	}
	f.show("lost responses to COMMIT", lost.Load())
	return nil
}

const databaseName = "kudos"

// database is a MariaDB primary, which has the counts, and its replica. A failover swaps them and creates a new value.
type database struct {
	primary, replica *stack.Database
	direct           *sql.DB // to the primary, bypassing all proxies
	failovers        int
}

func (s *system) startDatabase(ctx context.Context) error {
	var servers [2]*stack.Database
	for i := range servers {
		o := stack.DatabaseOptions{Dir: s.opts.Dir, Keep: true, Log: s.log, ExtraArgs: []string{
			"--max-binlog-size=67108864", "--binlog-expire-logs-seconds=600", "--max-connections=300",
			"--max-connect-errors=1000000", fmt.Sprintf("--server-id=%d", i+1)}}
		var err error
		if servers[i], err = stack.StartMariaDB(ctx, o); err != nil {
			return err
		}
		s.atEnd(servers[i].Close)
	}
	d := &database{primary: servers[0], replica: servers[1]}
	if err := d.primary.CreateDatabase(ctx, databaseName); err != nil {
		return err
	}
	if err := d.replica.Follow(ctx, d.primary, databaseName); err != nil {
		return err
	}
	var err error
	if d.direct, err = open(d.primary); err != nil {
		return err
	}
	s.database.Store(d)
	s.atEnd(func() error { return s.database.Load().direct.Close() })
	return nil
}

func open(server *stack.Database) (*sql.DB, error) {
	config := server.Config(databaseName)
	config.Timeout, config.ReadTimeout, config.WriteTimeout = 2*time.Second, 30*time.Second, 30*time.Second
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func (s *system) turnOver(ctx context.Context) error {
	was := s.database.Load()
	if err := was.replica.Promote(ctx); err != nil {
		return err
	}
	direct, err := open(was.replica)
	if err != nil {
		return err
	}
	s.database.Store(&database{was.replica, was.primary, direct, was.failovers + 1})
	return was.direct.Close()
}

func sumOfSeq(ctx context.Context, db *sql.DB) (sum uint64, err error) {
	positions, err := oracle.Positions(ctx, db)
	for _, at := range positions {
		sum += at.Seq
	}
	return sum, err
}

// failOver lets the replica fall behind, kills the primary, and promotes the replica without the commits that it
// missed. The old primary becomes the replica of the new one. failOver returns how many applied updates were lost.
func (s *system) failOver(ctx context.Context, meanwhile time.Duration, away func() func()) (lost uint64, err error) {
	d := s.database.Load()
	if err := d.replica.StopReplicating(ctx); err != nil {
		return 0, err
	}
	behind, err := open(d.replica)
	if err != nil {
		return 0, err
	}
	defer behind.Close()
	has, err := sumOfSeq(ctx, behind)
	if err != nil {
		return 0, err
	}
	had := has
	// Wait until there is something to lose, up to a limit: other faults may have stalled the system.
	for end := time.Now().Add(meanwhile + 10*time.Second); time.Now().Before(end); {
		if had, err = sumOfSeq(ctx, d.direct); err != nil {
			return 0, err
		}
		if had > has && time.Until(end) < 10*time.Second {
			break
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
	back := away()
	defer func() { back() }()
	if err := d.primary.Kill(); err != nil {
		return 0, err
	}
	if err := s.turnOver(ctx); err != nil {
		return 0, err
	}
	if err := s.network.pointMySQLTo(d.replica.Address()); err != nil {
		return 0, fmt.Errorf("point the proxy to the new primary: %w", err)
	}
	back()
	if err := d.primary.Start(ctx); err != nil {
		return 0, err
	}
	return had - has, d.primary.Follow(ctx, d.replica, databaseName)
}
