//go:build !nodev

package dev

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
)

// serialHandler lets go-mysql-server do one thing at a time. Two locks:
//
//   - transaction: held by the one connection that may write, from BEGIN or its first
//     writing statement to the end of the transaction. Waiting for it is bounded and
//     ends in error 1205, as InnoDB's row locks do.
//   - statement: held for each statement of any connection. Readers (outside of a
//     transaction) take only this one, so they pass between the statements of a
//     transaction and see the state before it.
//
// The transaction lock is always taken first.
type serialHandler struct {
	mysql.Handler
	lockWait    time.Duration
	statement   chan struct{} // holds one token while a statement runs
	transaction chan struct{} // holds one token while somebody may write
	closing     chan struct{}

	mu struct {
		sync.Mutex
		closed      bool
		connections map[uint32]*serialConn
		drained     chan struct{} // closed when closed and no connection is left
	}
}

// serialConn is one connection. Its commands come one after another, so that only the
// map that holds it needs a lock.
type serialConn struct {
	conn     *mysql.Conn
	session  sql.Session
	mayWrite bool // holds the transaction lock
}

func newSerialHandler(inner mysql.Handler, lockWait time.Duration) *serialHandler {
	h := &serialHandler{
		Handler:     inner,
		lockWait:    lockWait,
		statement:   make(chan struct{}, 1),
		transaction: make(chan struct{}, 1),
		closing:     make(chan struct{}),
	}
	h.mu.connections = make(map[uint32]*serialConn)
	h.mu.drained = make(chan struct{})
	return h
}

// attach tells which session a connection has, now and after it was reset.
func (h *serialHandler) attach(conn *mysql.Conn, session sql.Session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.mu.connections[conn.ConnectionID]; c != nil {
		c.session = session
	}
}

func (h *serialHandler) connection(conn *mysql.Conn) *serialConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.connections[conn.ConnectionID]
}

// close cuts all connections, and returns a channel that is closed when the last one
// has gone.
func (h *serialHandler) close() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.closed = true
	close(h.closing)
	for _, c := range h.mu.connections {
		c.conn.Close()
	}
	h.drainedLocked()
	return h.mu.drained
}

func (h *serialHandler) drainedLocked() {
	if h.mu.closed && len(h.mu.connections) == 0 {
		close(h.mu.drained)
	}
}

func (h *serialHandler) NewConnection(conn *mysql.Conn) {
	h.mu.Lock()
	closed := h.mu.closed
	if !closed {
		h.mu.connections[conn.ConnectionID] = &serialConn{conn: conn}
	}
	h.mu.Unlock()
	if closed { // accepted just before the listener was closed
		conn.Close()
	}
	h.Handler.NewConnection(conn)
}

func (h *serialHandler) ConnectionClosed(conn *mysql.Conn) {
	h.Handler.ConnectionClosed(conn)
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.mu.connections[conn.ConnectionID]
	if c == nil {
		return
	}
	h.release(c) // what the transaction did was in the session, which is gone
	delete(h.mu.connections, conn.ConnectionID)
	h.drainedLocked()
}

func (h *serialHandler) ComQuery(ctx context.Context, conn *mysql.Conn, query string, callback mysql.ResultSpoolFn) error {
	return h.run(conn, query, func() error { return h.Handler.ComQuery(ctx, conn, query, callback) })
}

// ComMultiQuery executes the first statement and returns the rest, with which it is
// called again: so the first word of the query tells about all that is executed.
func (h *serialHandler) ComMultiQuery(ctx context.Context, conn *mysql.Conn, query string, callback mysql.ResultSpoolFn) (rest string, err error) {
	err = h.run(conn, query, func() (err error) {
		rest, err = h.Handler.ComMultiQuery(ctx, conn, query, callback)
		return err
	})
	return rest, err
}

func (h *serialHandler) ComStmtExecute(ctx context.Context, conn *mysql.Conn, prepare *mysql.PrepareData, callback func(*sqltypes.Result) error) error {
	return h.run(conn, prepare.PrepareStmt, func() error { return h.Handler.ComStmtExecute(ctx, conn, prepare, callback) })
}

// ComPrepare, ComInitDB and ComResetConnection only read, or throw away.

func (h *serialHandler) ComPrepare(ctx context.Context, conn *mysql.Conn, query string, prepare *mysql.PrepareData) (fields []*querypb.Field, err error) {
	err = h.run(conn, "", func() (err error) {
		fields, err = h.Handler.ComPrepare(ctx, conn, query, prepare)
		return err
	})
	return fields, err
}

func (h *serialHandler) ComInitDB(conn *mysql.Conn, schema string) error {
	return h.run(conn, "", func() error { return h.Handler.ComInitDB(conn, schema) })
}

func (h *serialHandler) ComResetConnection(conn *mysql.Conn) error {
	return h.run(conn, "", func() error { return h.Handler.ComResetConnection(conn) })
}

// run executes one command of a connection under the locks that it needs.
func (h *serialHandler) run(conn *mysql.Conn, query string, command func() error) error {
	c := h.connection(conn)
	if c == nil {
		return mysql.NewSQLError(mysql.ERServerShutdown, mysql.SSServerShutdown, "server shutdown in progress")
	}
	if !c.mayWrite && (writes(query) || c.manualCommit()) {
		if err := h.acquire(c); err != nil {
			return err
		}
	}
	select {
	case h.statement <- struct{}{}:
	case <-h.closing:
		return mysql.NewSQLError(mysql.ERServerShutdown, mysql.SSServerShutdown, "server shutdown in progress")
	}
	defer func() {
		<-h.statement
		if !c.inTransaction() {
			h.release(c)
		}
	}()
	if c.session != nil && !c.inTransaction() {
		// A statement that failed early may have left its snapshot of the tables
		// behind. The next one would work on it, and write it back.
		c.session.SetTransaction(nil)
	}
	return command()
}

// acquire waits for the transaction lock.
func (h *serialHandler) acquire(c *serialConn) error {
	timeout := time.NewTimer(h.lockWait)
	defer timeout.Stop()
	select {
	case h.transaction <- struct{}{}:
		c.mayWrite = true
		return nil
	case <-h.closing:
		return mysql.NewSQLError(mysql.ERServerShutdown, mysql.SSServerShutdown, "server shutdown in progress")
	case <-timeout.C:
		return mysql.NewSQLError(mysql.ERLockWaitTimeout, mysql.SSUnknownSQLState, "Lock wait timeout exceeded; try restarting transaction")
	}
}

func (h *serialHandler) release(c *serialConn) {
	if c.mayWrite {
		c.mayWrite = false
		<-h.transaction
	}
}

// inTransaction tells whether the connection has begun a transaction by itself, so
// that only a COMMIT or ROLLBACK ends it.
func (c *serialConn) inTransaction() bool {
	if c.session == nil || c.session.GetTransaction() == nil {
		return false
	}
	return c.session.GetIgnoreAutoCommit() || c.manualCommit()
}

// manualCommit tells whether the connection has switched autocommit off: then its
// reads begin a transaction, too.
func (c *serialConn) manualCommit() bool {
	if c.session == nil {
		return false
	}
	autocommit, err := plan.IsSessionAutocommit(sql.NewContext(context.Background(), sql.WithSession(c.session)))
	return err == nil && !autocommit
}

// writes tells whether a statement may change something, by its first word. What is
// not known may. COMMIT and ROLLBACK need no lock of their own: where they end
// something, it is held.
func writes(query string) bool {
	switch strings.ToLower(firstWord(query)) {
	case "", "select", "show", "describe", "desc", "explain", "set", "use", "help", "do", "commit", "rollback":
		return false
	}
	return true
}

// firstWord skips white space, parentheses and comments.
func firstWord(query string) string {
	for {
		query = strings.TrimLeft(query, " \t\r\n(;")
		var end string
		switch {
		case strings.HasPrefix(query, "/*!"), strings.HasPrefix(query, "/*M!"):
			return "executable comment"
		case strings.HasPrefix(query, "/*"):
			end = "*/"
		case strings.HasPrefix(query, "--"), strings.HasPrefix(query, "#"):
			end = "\n"
		default:
			isLetter := func(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }
			if i := strings.IndexFunc(query, func(r rune) bool { return !isLetter(r) }); i >= 0 {
				return query[:i]
			}
			return query
		}
		_, rest, found := strings.Cut(query, end)
		if !found {
			return ""
		}
		query = rest
	}
}
