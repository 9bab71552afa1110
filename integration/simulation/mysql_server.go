package simulation

import (
	"database/sql/driver"
	"maps"
	"slices"
	"sync"

	"github.com/go-sql-driver/mysql"
)

// database is a MySQL server with three tables: row locks, READ COMMITTED, a replica that may lack the last commits.
type database struct {
	w     *world
	rows  map[string]row
	locks map[string]*conn
	conns []*conn
	away  bool
	undo  []map[string]row // the rows before each of the last commits, the newest last: what a failover may lose
	late  []*conn          // commits in flight whose client has given up on them

	closing struct {
		sync.Mutex
		conns []*conn
	}
}

// row is a row of any table, by column; nil: no row. The row's key consists of table and primary key.
type row map[string]driver.Value

const (
	colOffset   = "next_offset" // of applied_offset
	colSeq      = "next_seq"
	colLikes    = "likes" // of like_count and like_hourly
	colDislikes = "dislikes"
)

func (r row) number(column string) int64 { n, _ := r[column].(int64); return n }

const keptCommits = 4

const (
	numDuplicate   = 1062
	numLockTimeout = 1205
	numDeadlock    = 1213
)

type conn struct {
	db     *database
	proc   *process
	broken bool // closed for the client
	gone   bool // closed for the server
	writes map[string]row
	waits  *conn
}

// read returns a row as the session sees it. Callers clone it before they change it.
func (c *conn) read(key string) row {
	if r, ok := c.writes[key]; ok {
		return r
	}
	return c.db.rows[key]
}

func (c *conn) lock(key string) error {
	const patience = 25 // steps
	for tries := 0; ; tries++ {
		holder := c.db.locks[key]
		if holder == nil || holder == c {
			c.db.locks[key] = c
			c.waits = nil
			return nil
		}
		if tries == 0 {
			c.db.w.count("mysql: waits for a row lock")
		}
		c.waits = holder
		for o := holder; o != nil; o = o.waits {
			if o == c {
				c.end()
				return &mysql.MySQLError{Number: numDeadlock, Message: "Deadlock found when trying to get lock"}
			}
		}
		if tries == patience {
			c.waits = nil
			return &mysql.MySQLError{Number: numLockTimeout, Message: "Lock wait timeout exceeded"}
		}
		if err := c.arrive("mysql: waits for " + key); err != nil {
			return err
		}
	}
}

func (c *conn) arrive(what string) error {
	switch alive := c.db.w.step("%s", what); {
	case !alive, c.broken:
		return mysql.ErrInvalidConn
	case c.db.w.chanceOf(decision{c.db.w.asked(), "mysql: connection lost", what}, c.db.w.plan.lost):
		c.db.w.note("connection lost: %s", what)
		c.breakOff()
		return mysql.ErrInvalidConn
	}
	return nil
}

func (c *conn) breakOff() { c.broken = true; c.leave() }

func (c *conn) leave() {
	c.end()
	c.gone = true
	c.db.conns = remove(c.db.conns, c)
}

func (c *conn) end() {
	clear(c.writes)
	c.waits = nil
	maps.DeleteFunc(c.db.locks, func(_ string, holder *conn) bool { return holder == c })
}

func (c *conn) commit() {
	if len(c.writes) > 0 {
		c.db.w.tally["mysql: transaction committed"]++
		c.db.checkCommit(c)
		undo := map[string]row{}
		for key, r := range c.writes {
			undo[key] = c.db.rows[key]
			c.db.rows[key] = r
		}
		c.db.undo = append(c.db.undo, undo)
		if len(c.db.undo) > keptCommits {
			c.db.undo = c.db.undo[1:]
		}
		c.db.w.note("mysql: committed %v", slices.Sorted(maps.Keys(c.writes)))
	}
	c.end()
}

func (db *database) failover(n int) {
	n = min(n, len(db.undo))
	db.w.note("mysql: failover, %d commits lost", n)
	db.cut()
	if n > 0 {
		db.w.count("mysql: commits lost by failover")
	}
	for range n {
		last := db.undo[len(db.undo)-1]
		db.undo = db.undo[:len(db.undo)-1]
		maps.Copy(db.rows, last)
		maps.DeleteFunc(db.rows, func(_ string, r row) bool { return r == nil })
	}
}

func (db *database) cut() {
	db.late = nil
	for len(db.conns) > 0 {
		db.conns[0].breakOff()
	}
}

func (w *world) applied(p int32) int64 { return w.mysql.rows[positionKey(p)].number(colOffset) }

// floor returns a partition's position in the oldest state that a failover can lead to.
func (db *database) floor(key string) row {
	for _, undo := range db.undo {
		if before, changed := undo[key]; changed {
			return before
		}
	}
	return db.rows[key]
}
