//go:build !nodev

package dev

import (
	"context"
	"regexp"
	"sync"
	"time"

	"github.com/dolthub/go-mysql-server/sql"
	"github.com/dolthub/go-mysql-server/sql/plan"
	"github.com/dolthub/vitess/go/mysql"
	"github.com/dolthub/vitess/go/sqltypes"
	querypb "github.com/dolthub/vitess/go/vt/proto/query"
)

// serialHandler serializes go-mysql-server with two locks:
//
//   - transaction: held by the one connection that may write, from BEGIN or its first writing statement to the end of
//     the transaction. Waiting for it is bounded and ends with error 1205, like InnoDB's row locks.
//   - statement: held during each statement of any connection. Reads outside a transaction take only this lock: they
//     run between the statements of a transaction, and see the state before it.
//
// The transaction lock is always taken first.
type serialHandler struct {
	mysql.Handler
	lockWait    time.Duration
	statement   chan struct{} // holds one token while a statement runs
	transaction chan struct{} // holds one token while a connection may write
	closing     chan struct{}

	mu struct {
		sync.Mutex
		closed      bool
		connections map[uint32]*serialConn
		drained     chan struct{} // closed when closed is set and no connection is left
	}
}

// serialConn is one connection. Its commands are sequential, so only the map that holds it needs a lock.
type serialConn struct {
	conn     *mysql.Conn
	session  sql.Session
	mayWrite bool // holds the transaction lock
}

var (
	errClosing  = mysql.NewSQLError(mysql.ERServerShutdown, mysql.SSServerShutdown, "server shutdown in progress")
	errLockWait = mysql.NewSQLError(mysql.ERLockWaitTimeout, mysql.SSUnknownSQLState,
		"Lock wait timeout exceeded; try restarting transaction")
)

func newSerialHandler(inner mysql.Handler, lockWait time.Duration) *serialHandler {
	h := &serialHandler{Handler: inner, lockWait: lockWait, closing: make(chan struct{}),
		statement: make(chan struct{}, 1), transaction: make(chan struct{}, 1)}
	h.mu.connections, h.mu.drained = map[uint32]*serialConn{}, make(chan struct{})
	return h
}

// attach sets the session of a connection. The server calls it again after a reset of the connection.
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

// close closes all connections, and returns a channel that is closed when the last one is gone.
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
	h.release(c) // the session, with the transaction's changes, is gone
	delete(h.mu.connections, conn.ConnectionID)
	h.drainedLocked()
}

func (h *serialHandler) ComQuery(ctx context.Context, conn *mysql.Conn, query string, send mysql.ResultSpoolFn) error {
	return h.run(conn, query, func() error { return h.Handler.ComQuery(ctx, conn, query, send) })
}

// ComMultiQuery executes the first statement and returns the rest, for which it is called again. So the first word of
// query classifies all that it executes.
func (h *serialHandler) ComMultiQuery(ctx context.Context, conn *mysql.Conn, query string, send mysql.ResultSpoolFn,
) (rest string, err error) {
	err = h.run(conn, query, func() (err error) {
		rest, err = h.Handler.ComMultiQuery(ctx, conn, query, send)
		return err
	})
	return rest, err
}

func (h *serialHandler) ComStmtExecute(
	ctx context.Context, conn *mysql.Conn, prepare *mysql.PrepareData, send func(*sqltypes.Result) error,
) error {
	return h.run(conn, prepare.PrepareStmt, func() error { return h.Handler.ComStmtExecute(ctx, conn, prepare, send) })
}

// ComPrepare, ComInitDB and ComResetConnection only read, or discard changes.

func (h *serialHandler) ComPrepare(ctx context.Context, conn *mysql.Conn, query string, prepare *mysql.PrepareData,
) (fields []*querypb.Field, err error) {
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
		return errClosing
	}
	if !c.mayWrite && (writes(query) || c.manualCommit()) {
		select {
		case h.transaction <- struct{}{}:
			c.mayWrite = true
		case <-h.closing:
			return errClosing
		case <-time.After(h.lockWait):
			return errLockWait
		}
	}
	select {
	case h.statement <- struct{}{}:
	case <-h.closing:
		return errClosing
	}
	defer func() {
		<-h.statement
		if !c.inTransaction() {
			h.release(c)
		}
	}()
	if c.session != nil && !c.inTransaction() {
		// A statement that failed early may have left its table snapshot, which the next statement would write back.
		c.session.SetTransaction(nil)
	}
	return command()
}

func (h *serialHandler) release(c *serialConn) {
	if c.mayWrite {
		c.mayWrite = false
		<-h.transaction
	}
}

// inTransaction reports whether the connection has begun an explicit transaction, which only COMMIT or ROLLBACK ends.
func (c *serialConn) inTransaction() bool {
	if c.session == nil || c.session.GetTransaction() == nil {
		return false
	}
	return c.session.GetIgnoreAutoCommit() || c.manualCommit()
}

// manualCommit reports whether autocommit is off; then reads begin a transaction too.
func (c *serialConn) manualCommit() bool {
	if c.session == nil {
		return false
	}
	autocommit, err := plan.IsSessionAutocommit(sql.NewContext(context.Background(), sql.WithSession(c.session)))
	return err == nil && !autocommit
}

var (
	// beforeStatement matches white space, parentheses and comments, except those that MySQL or MariaDB executes. The
	// rest is matched by a second expression: in a single one a comment could extend to the end of any later comment.
	beforeStatement = regexp.MustCompile(`(?s)^(?:[\s(;]|/\*(?:\*/|(?:[^!M]|M[^!]).*?\*/)|(?:--|#)[^\n]*(?:\n|$))*`)
	// notWriting matches statements that change nothing. A COMMIT or ROLLBACK that ends a transaction has its lock.
	notWriting = regexp.MustCompile(
		`(?i)^(?:$|(?:select|show|describe|desc|explain|set|use|help|do|commit|rollback)\b)`)
)

// writes reports whether a statement may write. Unknown statements may.
func writes(query string) bool {
	return !notWriting.MatchString(query[len(beforeStatement.FindString(query)):])
}
