package simulation

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/go-sql-driver/mysql"
)

type connector struct{ proc *process }

func (k connector) Driver() driver.Driver { return nil }

func (k connector) Connect(context.Context) (driver.Conn, error) {
	w := k.proc.w
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	if !w.step("mysql: connect") || w.mysql.away || w.chance("mysql: connection refused", w.plan.lost) {
		return nil, refused
	}
	c := &conn{db: w.mysql, proc: k.proc, writes: map[string]row{}}
	w.mysql.conns = append(w.mysql.conns, c)
	return c, nil
}

var errNotUsed = errors.New("the model of MySQL does not support this")

func (c *conn) Prepare(string) (driver.Stmt, error) { return nil, errNotUsed }
func (c *conn) Begin() (driver.Tx, error)           { return nil, errNotUsed }
func (c *conn) IsValid() bool                       { return !c.broken }

func (c *conn) CheckNamedValue(v *driver.NamedValue) (err error) {
	if n, ok := v.Value.(uint64); ok {
		v.Value = int64(n)
		return nil
	}
	v.Value, err = driver.DefaultParameterConverter.ConvertValue(v.Value)
	return err
}

// Close may be called from any goroutine, since the pool closes old connections. The server notices at the next step.
func (c *conn) Close() error {
	c.db.closing.Lock()
	defer c.db.closing.Unlock()
	c.db.closing.conns = append(c.db.closing.conns, c)
	return nil
}

// reap ends sessions of closed connections, unless a COMMIT is in flight. The server notices dead processes (see halt).
func (db *database) reap() {
	db.closing.Lock()
	defer db.closing.Unlock()
	for _, c := range db.closing.conns {
		c.broken = true
		if !c.gone && !c.proc.dead && !slices.Contains(db.late, c) {
			c.leave()
		}
	}
	db.closing.conns = db.closing.conns[:0]
}

// BeginTx begins a READ COMMITTED transaction, whatever the options.
func (c *conn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	if err := c.arrive("mysql: START TRANSACTION"); err != nil {
		return nil, err
	}
	return tx{c}, nil
}

type tx struct{ c *conn }

func (t tx) Rollback() error {
	if t.c.broken || t.c.proc.dead {
		return mysql.ErrInvalidConn
	}
	t.c.end()
	return nil
}

// Commit may or may not have committed if its response is lost, or may commit later.
func (t tx) Commit() error {
	c, w := t.c, t.c.db.w
	if !w.step("mysql: COMMIT") || c.broken {
		return mysql.ErrInvalidConn
	}
	switch {
	case w.happens("mysql: COMMIT lost", w.plan.unclear):
		c.breakOff()
		return mysql.ErrInvalidConn
	case w.happens("mysql: COMMIT late", w.plan.unclear):
		c.broken = true
		c.db.late = append(c.db.late, c)
		return mysql.ErrInvalidConn
	case w.happens("mysql: COMMIT rejected", w.plan.unclear):
		c.end()
		return &mysql.MySQLError{Number: numDeadlock, Message: "Deadlock found when trying to get lock"}
	}
	c.commit()
	if !w.step("mysql responds: COMMIT") {
		return mysql.ErrInvalidConn
	}
	if w.happens("mysql: response to COMMIT lost", w.plan.unclear) {
		c.breakOff()
		return mysql.ErrInvalidConn
	}
	return nil
}

func (db *database) resolve(c *conn, done bool) {
	db.late = remove(db.late, c)
	if done && !c.gone {
		db.w.note("a late COMMIT of %s is executed", c.proc.name)
		c.commit()
	}
	if !c.gone {
		c.leave()
	}
}

type answer struct {
	columns []string
	rows    [][]driver.Value
}

func (a *answer) Columns() []string { return a.columns }
func (a *answer) Close() error      { return nil }

func (a *answer) Next(dest []driver.Value) error {
	if len(a.rows) == 0 {
		return io.EOF
	}
	copy(dest, a.rows[0])
	a.rows = a.rows[1:]
	return nil
}
