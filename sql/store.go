package sql

import (
	"context"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/jmoiron/sqlx"
)

// Store applies ranges of the updates log to one MySQL database. It is safe for concurrent use; one partition should have one
// caller at a time (two do no harm, the compare-and-swap refuses one of them).
type Store struct {
	options Options
	log     *slog.Logger
	db      *sqlx.DB
	packet  *packetLimit
	// conflicts counts transactions that are done again.
	conflicts atomic.Uint64
	// isShard: the database has said that it is the shard of the options.
	isShard atomic.Bool
	server  string // host:port/database, and which shard it is of several; for messages
}

// New is for one database; Open for all. It does no I/O: the first call that needs MySQL connects.
func New(o Options, log *slog.Logger) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("mysql options: %w", err)
	}
	config, err := driverConfig(o, log)
	if err != nil {
		return nil, fmt.Errorf("mysql options: %w", err)
	}
	connections, err := newConnector(config)
	if err != nil {
		return nil, fmt.Errorf("mysql options: %w", err)
	}
	return NewOn(connections, o, log), nil
}

// NewOn makes a store on connections of any kind that answer like MySQL. The options must be valid; what concerns
// making connections is not used.
func NewOn(connections driver.Connector, o Options, log *slog.Logger) *Store {
	// Half of the server's patience: the pool drops an idle connection before the server does.
	db, packet := openPool(connections, o.ConnectTimeout, o.MaxOpenConns, o.IdleTimeout/2)
	return &Store{options: o, log: log, db: db, packet: packet, server: o.server()}
}

// String tells people which database it is, without user and password.
func (s *Store) String() string { return s.server }

// Server is host:port/database.
func (s *Store) Server() string { return serverName(s.options.DSN) }

// Shard is its place among those that share the partitions, as the options have it.
func (s *Store) Shard() Shard { return s.options.Shard }

// Close ends the connections. Calls still running fail.
func (s *Store) Close() error { return s.db.Close() }

// Ping tells whether the server answers and lets us in.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.db.PingContext(ctx); err != nil {
		return describe(err, "reach MySQL at %s", s.server)
	}
	return nil
}
