package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"kudos/integration/oracle"
	"kudos/integration/stack"
)

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
	config, err := mysql.ParseDSN(server.DSN(databaseName))
	if err != nil {
		return nil, err
	}
	config.Logger = &mysql.NopLogger{} // connections break on purpose here
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
func (s *system) failOver(ctx context.Context, meanwhile time.Duration) (lost uint64, err error) {
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
	if err := d.primary.Kill(); err != nil {
		return 0, err
	}
	if err := s.turnOver(ctx); err != nil {
		return 0, err
	}
	if err := s.network.pointMySQLTo(d.replica.Address()); err != nil {
		return 0, fmt.Errorf("point the proxy to the new primary: %w", err)
	}
	if err := d.primary.Start(ctx); err != nil {
		return 0, err
	}
	return had - has, d.primary.Follow(ctx, d.replica, databaseName)
}
