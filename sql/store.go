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

// Store applies ranges of the updates log to one MySQL database. It is safe for concurrent use. One partition should
// have one caller at a time; two do no harm, the compare-and-swap refuses one of them.
type Store struct {
	options   Options
	log       *slog.Logger
	db        *sqlx.DB
	packet    *packetLimit
	conflicts atomic.Uint64 // transactions that are retried
	isShard   atomic.Bool   // the database has said that it is the shard of the options
}

// New is for one database; Open for all. It does no I/O: the first call that needs MySQL connects.
func New(o Options, log *slog.Logger) (*Store, error) {
	connections, err := o.Connector(log)
	if err != nil {
		return nil, err
	}
	return NewOn(connections, o, log), nil
}

// NewOn makes a store on connections of any kind that answer like MySQL. The options must be valid; what concerns
// making connections is not used.
func NewOn(connections driver.Connector, o Options, log *slog.Logger) *Store {
	packet := &packetLimit{ours: o.MaxStatementBytes}
	pool := stdsql.OpenDB(&connector{Connector: connections, timeout: o.ConnectTimeout, limit: packet})
	pool.SetMaxOpenConns(o.MaxOpenConns)
	pool.SetMaxIdleConns(o.MaxOpenConns)
	pool.SetConnMaxLifetime(connLifetime)
	// Half of the server's patience: the pool drops an idle connection before the server does.
	pool.SetConnMaxIdleTime(o.IdleTimeout / 2)
	return &Store{options: o, log: log, db: sqlx.NewDb(pool, "mysql"), packet: packet}
}

// newUntimed is for whoever makes and changes tables.
func newUntimed(o Options, log *slog.Logger) (*Store, error) {
	o = o.untimed()
	connections, err := newConnector(o, log)
	if err != nil {
		return nil, err
	}
	return NewOn(connections, o, log), nil
}

// String tells people which database it is, without user and password.
func (s *Store) String() string { return s.options.server() }

// Server is host:port/database.
func (s *Store) Server() string { return serverName(s.options.DSN) }

// Shard is its place among those that share the partitions, as the options have it.
func (s *Store) Shard() Shard { return s.options.Shard }

// Close ends the connections. Calls still running fail.
func (s *Store) Close() error { return s.db.Close() }

// collectors are Prometheus collectors of the connections (go_sql_…) and of the retries.
func (s *Store) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		collectors.NewDBStatsCollector(s.db.DB, s.Server()),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "kudos", Name: "mysql_conflicts_total",
			ConstLabels: prometheus.Labels{"shard": s.Shard().Label()},
			Help: "Transactions that MySQL ended for a deadlock or a lock wait timeout; " +
				"they are done again (mysql.retries).",
		}, func() float64 { return float64(s.conflicts.Load()) }),
	}
}
