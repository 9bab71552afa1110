//go:build !nodev

package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/memory"
	"github.com/dolthub/go-mysql-server/server"
	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/types"
	"github.com/dolthub/vitess/go/mysql"
	vitesslog "github.com/dolthub/vitess/go/vt/log"
	"github.com/sirupsen/logrus"
)

// DatabaseOptions of the embedded MySQL server.
type DatabaseOptions struct {
	// Address to listen on, host:port; port 0 takes a free one.
	Address string `mapstructure:"address"`
	// LockWait is how long a transaction waits for those before it, until it is refused
	// with MySQL's error 1205. All wait for one lock here, not for single rows: so it is
	// longer than what clients ask for by innodb_lock_wait_timeout, which is ignored.
	LockWait time.Duration `mapstructure:"lock_wait"`
	// ShutdownTimeout bounds the wait for running statements on exit.
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"`
}

// DefaultDatabaseOptions listen on MySQL's port, on this machine only.
func DefaultDatabaseOptions() DatabaseOptions {
	return DatabaseOptions{Address: "127.0.0.1:3306", LockWait: 20 * time.Second, ShutdownTimeout: 5 * time.Second}
}

// Validate says what is wrong with the options, all of it.
func (o DatabaseOptions) Validate() error {
	var errs []error
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		errs = append(errs, fmt.Errorf("address %q is not host:port: %w", o.Address, err))
	}
	if o.LockWait <= 0 || o.ShutdownTimeout <= 0 {
		errs = append(errs, errors.New("lock_wait and shutdown_timeout must be above 0"))
	}
	return errors.Join(errs...)
}

// Database is a MySQL server in this process: go-mysql-server with its tables in
// memory, any user and no password.
//
// By itself it has neither row locks nor isolation: a commit writes back, whole, every
// table that its transaction has touched, and even a SELECT that ran beside a commit
// undoes it. So statements run one at a time here, and from BEGIN (or a statement that
// writes) to the end of the transaction no other may begin (see serialHandler).
// Nothing is lost then, whatever clients do, but transactions queue; one writing
// connection is all that is of use.
//
// It scans where a real server looks up: a statement costs time in proportion to its
// rows times the rows of the table. That is right for thousands of posts, not for
// millions. SELECT … FOR UPDATE and isolation levels are accepted; savepoints are not.
type Database struct {
	options  DatabaseOptions
	log      *slog.Logger
	listener net.Listener
	engine   *sqle.Engine
	server   *server.Server
	handler  *serialHandler
	served   chan struct{} // closed when nothing is accepted any more
}

// init silences the server's two loggers, which are its own but global, and lets
// sessions set the lock wait timeout as they can in MySQL: clients that do could not
// connect otherwise.
func init() {
	const lockWait = "innodb_lock_wait_timeout"
	logrus.SetOutput(io.Discard)
	quiet, quietf := func(...any) {}, func(string, ...any) {}
	vitesslog.Info, vitesslog.Warning, vitesslog.Error = quiet, quiet, quiet
	vitesslog.Infof, vitesslog.Warningf, vitesslog.Errorf = quietf, quietf, quietf
	sql.SystemVariables.AddSystemVariables([]sql.SystemVariable{&sql.MysqlSystemVariable{
		Name:    lockWait,
		Scope:   sql.GetMysqlScope(sql.SystemVariableScope_Both),
		Dynamic: true,
		Type:    types.NewSystemIntType(lockWait, 1, 1<<30, false),
		Default: int64(50),
	}})
}

// NewDatabase makes the server; nothing listens yet.
func NewDatabase(o DatabaseOptions, log *slog.Logger) *Database {
	return &Database{options: o, log: log, served: make(chan struct{})}
}

// Start listens and serves. After it, Run must be called, which ends what Start has
// started.
func (d *Database) Start() error {
	if err := d.options.Validate(); err != nil {
		return fmt.Errorf("embedded MySQL: %w", err)
	}
	listener, err := net.Listen("tcp", d.options.Address)
	if err != nil {
		return fmt.Errorf("embedded MySQL cannot listen on %s: %w (give another address, or port 0 for any free one)", d.options.Address, err)
	}
	provider := memory.NewDBProvider(memory.NewDatabase(databaseName))
	d.engine = sqle.NewDefault(provider)
	sessions := memory.NewSessionBuilder(provider)
	config := server.Config{
		Protocol: "tcp",
		Address:  listener.Addr().String(),
		Listener: listener,
		Version:  "8.0.31-kudos-dev",
		// A client that does not read its answer holds everybody else up.
		ConnWriteTimeout: 30 * time.Second,
	}
	wrap := func(inner mysql.Handler) (mysql.Handler, error) {
		d.handler = newSerialHandler(inner, d.options.LockWait)
		return d.handler, nil
	}
	build := func(ctx context.Context, conn *mysql.Conn, addr string) (sql.Session, error) {
		session, err := sessions(ctx, conn, addr)
		if err == nil {
			d.handler.attach(conn, session)
		}
		return session, err
	}
	d.server, err = server.NewServerWithHandler(config, d.engine, sql.NewContext, build, nil, wrap)
	if err != nil {
		return errors.Join(fmt.Errorf("embedded MySQL: %w", err), listener.Close())
	}
	d.listener = listener
	go func() {
		defer close(d.served)
		_ = d.server.Start() // always nil
	}()
	return nil
}

// Address is where the server listens, host:port. Known after Start.
func (d *Database) Address() string { return d.listener.Addr().String() }

// DSN reaches the server with go-sql-driver/mysql.
func (d *Database) DSN() string { return "root@tcp(" + d.Address() + ")/" + databaseName }

// Run serves until ctx ends, and returns when all connections are closed or
// ShutdownTimeout is over.
func (d *Database) Run(ctx context.Context) error {
	var err error
	select {
	case <-ctx.Done():
	case <-d.served:
		err = fmt.Errorf("embedded MySQL at %s stopped listening", d.Address())
	}
	return errors.Join(err, d.stop())
}

func (d *Database) stop() error {
	_ = d.server.Close() // always nil
	<-d.served
	drained := d.handler.close()
	timeout := time.NewTimer(d.options.ShutdownTimeout)
	defer timeout.Stop()
	select {
	case <-drained:
	case <-timeout.C:
		return fmt.Errorf("embedded MySQL: a statement still ran %s after the shutdown", d.options.ShutdownTimeout)
	}
	// Its background threads end by being cancelled, and it tells that as an error.
	if err := d.engine.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("closing embedded MySQL: %w", err)
	}
	return nil
}
