package simulation

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// This file is a database/sql driver for the modeled MySQL server: sessions and statements.

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
	return tx{c}, c.arrive("mysql: START TRANSACTION")
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
	switch {
	case !w.step("mysql: COMMIT") || c.broken:
		return mysql.ErrInvalidConn
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

// Only the statements of package sql are supported, but parsed: a missing condition acts as on a real server.

func (c *conn) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if query == "SELECT @@max_allowed_packet" {
		return &answer{[]string{"n"}, [][]driver.Value{{int64(1 << 20)}}}, nil
	}
	if strings.HasPrefix(query, "SHOW GLOBAL VARIABLES") { // no cluster; once a process, so not a step of schedules
		return &answer{[]string{"Variable_name", "Value"}, nil}, nil
	}
	if err := c.arrive("mysql: " + firstWords(query)); err != nil {
		return nil, err
	}
	switch {
	case query == "SELECT shard, shards FROM kudos_shard WHERE id = 1":
		return &answer{[]string{"shard", "shards"}, [][]driver.Value{{int64(0), int64(1)}}}, nil
	case strings.HasPrefix(query, "SELECT EXISTS"):
		found := int64(0)
		for key := range c.db.rows {
			if key[0] == 'c' || key[0] == 'h' {
				found = 1
			}
		}
		return &answer{[]string{"found"}, [][]driver.Value{{found}}}, nil
	case strings.HasPrefix(query, "SELECT ") && strings.Contains(query, " FROM applied_offset WHERE "):
		return c.selectPositions(query, args)
	}
	return nil, fmt.Errorf("%w: %s", errNotUsed, query)
}

func firstWords(query string) string { return query[:min(len(query), 32)] }

func (c *conn) selectPositions(query string, args []driver.NamedValue) (driver.Rows, error) {
	list, rest, _ := strings.Cut(strings.TrimPrefix(query, "SELECT "), " FROM applied_offset WHERE ")
	where, lock := strings.CutSuffix(rest, " FOR UPDATE")
	where, _ = strings.CutSuffix(where, " LIMIT 1")
	where, _, _ = strings.Cut(where, " ORDER BY ")
	a := &answer{columns: strings.Split(list, ", ")}
	conditions := equations(where, " AND ", args)
	for _, key := range c.positionKeys(conditions) {
		if lock && c.db.rows[key] != nil {
			if err := c.lock(key); err != nil {
				return nil, err
			}
		}
		r := c.read(key)
		if !r.fits(conditions) {
			continue
		}
		values := make([]driver.Value, len(a.columns))
		for i, column := range a.columns {
			values[i] = r.column(column)
		}
		a.rows = append(a.rows, values)
	}
	return a, nil
}

func (c *conn) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.arrive("mysql: " + firstWords(query)); err != nil {
		return nil, err
	}
	switch {
	case strings.HasPrefix(query, "UPDATE applied_offset SET "):
		return c.updatePosition(query, args)
	case strings.HasPrefix(query, "INSERT INTO applied_offset "):
		return c.insertPosition(query, args)
	case strings.HasPrefix(query, "INSERT INTO like_count "):
		return c.upsert("c", query)
	case strings.HasPrefix(query, "INSERT INTO like_hourly "):
		return c.upsert("h", query)
	}
	return nil, fmt.Errorf("%w: %s", errNotUsed, query)
}

type equation struct {
	column string
	value  driver.Value
}

// equations parses "a = ?, b = ?" with the arguments in order, and skips columns without an argument.
func equations(text, separator string, args []driver.NamedValue) []equation {
	var list []equation
	for part := range strings.SplitSeq(text, separator) {
		if column, value, _ := strings.Cut(part, " = "); value == "?" {
			list = append(list, equation{column, args[0].Value})
			args = args[1:]
		}
	}
	return list
}

func positionKey(partition int32) string { return "p" + strconv.Itoa(int(partition)) }

func (c *conn) positionKeys(conditions []equation) []string {
	var keys []string
	for p := range c.db.w.plan.partitions {
		if !slices.ContainsFunc(conditions, func(e equation) bool {
			return e.column == "partition_id" && e.value != int64(p)
		}) {
			keys = append(keys, positionKey(p))
		}
	}
	return keys
}

func (r row) column(name string) driver.Value {
	v, ok := r[name]
	if !ok {
		panic("applied_offset has no column " + name)
	}
	return v
}

func (r row) fits(conditions []equation) bool {
	return r != nil && !slices.ContainsFunc(conditions, func(e equation) bool { return r.column(e.column) != e.value })
}

func (c *conn) updatePosition(query string, args []driver.NamedValue) (driver.Result, error) {
	set, where, _ := strings.Cut(strings.TrimPrefix(query, "UPDATE applied_offset SET "), " WHERE ")
	values := equations(set, ", ", args)
	conditions := equations(where, " AND ", args[len(values):])
	changed := 0
	for _, key := range c.positionKeys(conditions) {
		if c.read(key) == nil {
			continue
		}
		if err := c.lock(key); err != nil {
			return nil, err
		}
		r := maps.Clone(c.read(key))
		if !r.fits(conditions) {
			continue
		}
		for _, v := range values {
			_ = r.column(v.column)
			r[v.column] = v.value
		}
		c.writes[key] = r
		changed++
	}
	return driver.RowsAffected(changed), nil
}

func (c *conn) insertPosition(query string, args []driver.NamedValue) (driver.Result, error) {
	_, list, _ := strings.Cut(query, "(")
	list, _, _ = strings.Cut(list, ")")
	r := row{}
	for i, column := range strings.Split(list, ", ") {
		r[column] = args[i].Value
	}
	key := positionKey(int32(r.number("partition_id")))
	if err := c.lock(key); err != nil {
		return nil, err
	}
	if c.read(key) != nil {
		return nil, &mysql.MySQLError{Number: numDuplicate, Message: "Duplicate entry for key 'PRIMARY'"}
	}
	c.writes[key] = r
	return driver.RowsAffected(1), nil
}

// upsert inserts rows like (1,2,3) or ('2000-01-01 00:00:00','DE',0,2,3), or adds the last two values; the rest is key.
func (c *conn) upsert(table, query string) (driver.Result, error) {
	_, list, _ := strings.Cut(query, " VALUES (")
	list, update, _ := strings.Cut(list, ") ON DUPLICATE KEY UPDATE ")
	adds := strings.Count(update, " + VALUES(") == 2
	for tuple := range strings.SplitSeq(list, "),(") {
		values := strings.Split(tuple, ",")
		n := len(values)
		key := table + strings.Join(values[:n-2], ",")
		if err := c.lock(key); err != nil {
			return nil, err
		}
		before, r := c.read(key), row{}
		for i, column := range []string{colLikes, colDislikes} {
			v, err := strconv.ParseInt(values[n-2+i], 10, 64)
			if err != nil {
				return nil, err
			}
			if adds {
				v += before.number(column)
			}
			r[column] = v
		}
		c.writes[key] = r
	}
	return driver.RowsAffected(1), nil
}
