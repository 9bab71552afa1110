//go:build !nodev

package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// DatabaseAddress is the default address of the embedded database: MySQL's port, on the loopback interface.
const DatabaseAddress = "127.0.0.1:3306"

const (
	databaseName = "kudos" // the only database of the embedded MySQL server
	// lockWait is how long a transaction waits for earlier ones before it fails with MySQL's error 1205. All
	// transactions wait for one lock, so it exceeds the innodb_lock_wait_timeout that clients set, which is ignored.
	lockWait     = 20 * time.Second
	drainTimeout = 5 * time.Second // bounds the wait for running statements at shutdown
	maxPacket    = 16 << 10        // max_allowed_packet: half a second for like_hourly with 16,000 rows
)

// Database is a MySQL server in this process: go-mysql-server with its tables in memory, any user and no password.
//
// go-mysql-server has neither row locks nor isolation: a commit writes back, whole, every table that its transaction
// touched, and even a concurrent SELECT undoes it. So Database runs statements one at a time, and from BEGIN (or a
// writing statement) to the end of the transaction no other transaction may begin (see serialHandler). No write is
// lost, whatever clients do, but transactions queue; more than one writing connection has no benefit.
//
// It scans where a real server uses an index: a statement costs time in proportion to its rows times the table's, fast
// enough for thousands of posts, and all others wait: max_allowed_packet is small, so that kudos splits its batches.
// SELECT … FOR UPDATE and isolation levels are accepted; savepoints are not.
type Database struct {
	address string
	engine  *sqle.Engine
	server  *server.Server
	handler *serialHandler
	served  chan struct{} // closed when no more connections are accepted
}

// init silences the server's two global loggers, and defines a variable that clients set, and one that they read.
func init() {
	logrus.SetOutput(io.Discard)
	quiet, quietf := func(...any) {}, func(string, ...any) {}
	vitesslog.Info, vitesslog.Warning, vitesslog.Error = quiet, quiet, quiet
	vitesslog.Infof, vitesslog.Warningf, vitesslog.Errorf = quietf, quietf, quietf
	define := func(name string, least, value int64) sql.SystemVariable {
		return &sql.MysqlSystemVariable{Name: name, Scope: sql.GetMysqlScope(sql.SystemVariableScope_Both),
			Dynamic: true, Type: types.NewSystemIntType(name, least, 1<<30, false), Default: value}
	}
	sql.SystemVariables.AddSystemVariables([]sql.SystemVariable{
		define("innodb_lock_wait_timeout", 1, 50), define("max_allowed_packet", 1024, maxPacket)})
}

// StartDatabase listens on address (port 0: any free port) and serves; call Run to shut it down.
func StartDatabase(address string) (*Database, error) { return startDatabase(address, lockWait) }

func startDatabase(address string, lockWait time.Duration) (*Database, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("embedded MySQL: address %q is not host:port: %w", address, err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		const help = "(use another address, or port 0 for any free port)"
		return nil, fmt.Errorf("embedded MySQL cannot listen on %s: %w %s", address, err, help)
	}
	provider := memory.NewDBProvider(memory.NewDatabase(databaseName))
	d := &Database{address: listener.Addr().String(), engine: sqle.NewDefault(provider), served: make(chan struct{})}
	config := server.Config{
		Protocol: "tcp", Address: d.address, Listener: listener, Version: "8.0.31-kudos-dev",
		ConnWriteTimeout: 30 * time.Second, // a client that does not read its result blocks all others
	}
	wrap := func(inner mysql.Handler) (mysql.Handler, error) {
		d.handler = newSerialHandler(inner, lockWait)
		return d.handler, nil
	}
	sessions := memory.NewSessionBuilder(provider)
	build := func(ctx context.Context, conn *mysql.Conn, addr string) (sql.Session, error) {
		session, err := sessions(ctx, conn, addr)
		if err == nil {
			d.handler.attach(conn, session)
		}
		return session, err
	}
	d.server, err = server.NewServerWithHandler(config, d.engine, sql.NewContext, build, nil, wrap)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded MySQL: %w", err), listener.Close())
	}
	go func() {
		defer close(d.served)
		_ = d.server.Start() // always nil
	}()
	return d, nil
}

// Address is where the server listens, host:port.
func (d *Database) Address() string { return d.address }

// DSN is the data source name for go-sql-driver/mysql.
func (d *Database) DSN() string { return "root@tcp(" + d.address + ")/" + databaseName }

// Run serves until ctx ends, and returns when all connections are closed or after drainTimeout.
func (d *Database) Run(ctx context.Context) (err error) {
	select {
	case <-ctx.Done():
	case <-d.served:
		err = fmt.Errorf("embedded MySQL at %s stopped listening", d.address)
	}
	_ = d.server.Close() // always nil
	<-d.served
	select {
	case <-d.handler.close():
	case <-time.After(drainTimeout):
		return errors.Join(err, fmt.Errorf("embedded MySQL: a statement still ran %s after shutdown", drainTimeout))
	}
	// The engine's background threads end by cancellation, which it reports as an error.
	if closing := d.engine.Close(); closing != nil && !errors.Is(closing, context.Canceled) {
		err = errors.Join(err, fmt.Errorf("closing embedded MySQL: %w", closing))
	}
	return err
}
