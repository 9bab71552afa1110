package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"kudos/integration/oracle"
	"kudos/integration/stack"
)

// databaseName is the database of the system.
const databaseName = "kudos"

// database is MariaDB: a primary and its replica, which change places at each failover.
type database struct {
	mu struct {
		sync.Mutex
		primary, replica *stack.Database
		direct           *sql.DB // to the primary, past all proxies
		failovers        int
	}
}

func startDatabase(ctx context.Context, o stack.DatabaseOptions) (_ *database, err error) {
	d := &database{}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	args := []string{"--max-binlog-size=67108864", "--binlog-expire-logs-seconds=600", "--max-connections=300", "--max-connect-errors=1000000"}
	o.ExtraArgs = append(args, "--server-id=1")
	if d.mu.primary, err = stack.StartMariaDB(ctx, o); err != nil {
		return nil, err
	}
	o.ExtraArgs = append(args, "--server-id=2")
	if d.mu.replica, err = stack.StartMariaDB(ctx, o); err != nil {
		return nil, err
	}
	if err = d.mu.primary.CreateDatabase(ctx, databaseName); err != nil {
		return nil, err
	}
	if err = d.mu.replica.Follow(ctx, d.mu.primary, databaseName); err != nil {
		return nil, err
	}
	d.mu.direct, err = open(d.mu.primary)
	return d, err
}

// open makes a pool of connections that do not wait for ever.
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

// primary is the server that counts are in, with a way to it past all proxies; generation changes at each failover.
func (d *database) primary() (server *stack.Database, direct *sql.DB, generation int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.primary, d.mu.direct, d.mu.failovers
}

func (d *database) replica() *stack.Database {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.replica
}

func (d *database) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	if d.mu.direct != nil {
		errs = append(errs, d.mu.direct.Close())
	}
	for _, s := range []*stack.Database{d.mu.primary, d.mu.replica} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// turnOver makes the replica the primary.
func (d *database) turnOver(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.mu.replica.Promote(ctx); err != nil {
		return err
	}
	direct, err := open(d.mu.replica)
	if err != nil {
		return err
	}
	err = d.mu.direct.Close()
	d.mu.primary, d.mu.replica, d.mu.direct = d.mu.replica, d.mu.primary, direct
	d.mu.failovers++
	return err
}

// sumOfSeq is how many updates a server has applied, over all partitions.
func sumOfSeq(ctx context.Context, db *sql.DB) (sum uint64, err error) {
	positions, err := oracle.Positions(ctx, db)
	for _, at := range positions {
		sum += at.Seq
	}
	return sum, err
}

// failOver lets the replica fall behind, kills the primary, and has the replica take over without what it missed. The
// old primary comes back as the new one's replica. It returns how many applied updates were lost.
func (s *system) failOver(ctx context.Context, meanwhile time.Duration) (lost uint64, err error) {
	primary, direct, _ := s.database.primary()
	replica := s.database.replica()
	if err := replica.StopReplicating(ctx); err != nil {
		return 0, err
	}
	behind, err := open(replica)
	if err != nil {
		return 0, err
	}
	defer behind.Close()
	has, err := sumOfSeq(ctx, behind)
	if err != nil {
		return 0, err
	}
	had := has
	// Not before something is there to be lost; but others may have the system stand still.
	for end := time.Now().Add(meanwhile + 10*time.Second); time.Now().Before(end); {
		if had, err = sumOfSeq(ctx, direct); err != nil {
			return 0, err
		}
		if had > has && time.Until(end) < 10*time.Second {
			break
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
	if err := primary.Kill(); err != nil {
		return 0, err
	}
	if err := s.database.turnOver(ctx); err != nil {
		return 0, err
	}
	next, _, _ := s.database.primary()
	if err := s.network.pointMySQLTo(next.Address()); err != nil {
		return 0, fmt.Errorf("point the proxy to the new primary: %w", err)
	}
	if err := primary.Start(ctx); err != nil {
		return 0, err
	}
	return had - has, primary.Follow(ctx, next, databaseName)
}
