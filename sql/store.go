package sql

import (
	stdsql "database/sql"
	"database/sql/driver"
	"log/slog"
	"sync/atomic"

	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Store applies ranges of the updates log to one MySQL database. It is safe for concurrent use. A partition should have
// one caller at a time, but two do no harm: the compare-and-swap rejects one of them.
type Store struct {
	options   Options
	log       *slog.Logger
	db        *sqlx.DB
	packet    *packetLimit
	conflicts atomic.Uint64 // transactions that lost a lock conflict
	isShard   atomic.Bool   // checkShardOnce has succeeded
	oneWriter atomic.Bool   // checkWriters has succeeded
}

// New creates a store for one database; Open does for all. It does no I/O: the first call that needs MySQL connects.
func New(o Options, log *slog.Logger) (*Store, error) {
	connections, err := o.Connector(log)
	if err != nil {
		return nil, err
	}
	return NewOn(connections, o, log), nil
}

// NewOn creates a store on any MySQL-like connections. The options must be valid; those for connecting are ignored.
func NewOn(connections driver.Connector, o Options, log *slog.Logger) *Store {
	packet := &packetLimit{ours: o.MaxStatementBytes}
	pool := stdsql.OpenDB(&connector{Connector: connections, timeout: o.ConnectTimeout, limit: packet})
	pool.SetMaxOpenConns(o.MaxOpenConns)
	pool.SetMaxIdleConns(o.MaxOpenConns)
	pool.SetConnMaxLifetime(connLifetime)
	// Half of the server's timeout, so that the pool drops an idle connection before the server does.
	pool.SetConnMaxIdleTime(o.IdleTimeout / 2)
	return &Store{options: o, log: log, db: sqlx.NewDb(pool, "mysql"), packet: packet}
}

func newUntimed(o Options, log *slog.Logger) (*Store, error) {
	o = o.untimed()
	connections, err := newConnector(o, log)
	if err != nil {
		return nil, err
	}
	return NewOn(connections, o, log), nil
}

// String names the database, without user and password, and its shard.
func (s *Store) String() string { return s.options.server() }

// Server is host:port/database.
func (s *Store) Server() string { return serverName(s.options.DSN) }

// Shard is the shard that the options say.
func (s *Store) Shard() Shard { return s.options.Shard }

// Close closes the connections. Calls in flight fail.
func (s *Store) Close() error { return s.db.Close() }

// collectors are the Prometheus collectors of the connection pool (go_sql_…) and of lock conflicts.
func (s *Store) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		collectors.NewDBStatsCollector(s.db.DB, s.Server()),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "kudos", Name: "mysql_conflicts_total",
			ConstLabels: prometheus.Labels{"shard": s.Shard().Label()},
			Help: "Transactions that MySQL aborted for a deadlock or a lock wait timeout; " +
				"they are retried (mysql.retries).",
		}, func() float64 { return float64(s.conflicts.Load()) }),
	}
}
