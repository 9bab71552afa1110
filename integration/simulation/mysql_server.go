package simulation

import (
	"sync"

	"github.com/go-sql-driver/mysql"
)

// database is a MySQL server with the three tables: row locks, READ COMMITTED, and a
// replica that may lack the last commits.
type database struct {
	w     *world
	rows  map[string]row
	locks map[string]*conn
	conns []*conn
	away  bool
	// undo are the last commits, the newest last: what a failover may lose.
	undo []map[string]*row
	// late are commits that were given up by the client and still are under way.
	late []*conn
	// closing are connections whose client has closed them.
	closing struct {
		sync.Mutex
		conns []*conn
	}
}

// row is a row of any of the tables. Its key names table and primary key.
type row struct {
	topicID string
	n       [4]int64
}

// Columns of applied_offset in row.n.
const (
	colPartitions = iota
	colOffset
	colSeq
	colEpoch
)

// keptCommits is how far a failover may go back.
const keptCommits = 4

const (
	numDuplicate   = 1062
	numLockTimeout = 1205
	numDeadlock    = 1213
)

func newDatabase(w *world) *database {
	return &database{w: w, rows: map[string]row{}, locks: map[string]*conn{}}
}

// conn is a session of the server, and the client's connection to it.
type conn struct {
	db     *database
	proc   *process
	broken bool // for the client
	gone   bool // for the server
	begun  bool
	writes map[string]row
	order  []string // of writes
	waits  *conn
}

// read returns a row as the session sees it.
func (c *conn) read(key string) (row, bool) {
	if r, ok := c.writes[key]; ok {
		return r, true
	}
	r, ok := c.db.rows[key]
	return r, ok
}

func (c *conn) write(key string, r row) {
	if _, ok := c.writes[key]; !ok {
		c.order = append(c.order, key)
	}
	c.writes[key] = r
}

// lock waits for a row, for a while.
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
				c.rollback()
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

// arrive is a step on the way to the server.
func (c *conn) arrive(what string) error {
	alive := c.db.w.step("%s", what)
	switch {
	case !alive:
		return mysql.ErrInvalidConn
	case c.broken:
		return mysql.ErrInvalidConn
	case c.db.w.lost("mysql: connection lost", what):
		c.db.w.note("connection lost: %s", what)
		c.breakOff()
		return mysql.ErrInvalidConn
	}
	return nil
}

// breakOff ends a connection on both sides.
func (c *conn) breakOff() {
	c.broken = true
	c.leave()
}

// leave ends the session on the server.
func (c *conn) leave() {
	c.rollback()
	c.gone = true
	c.db.conns = remove(c.db.conns, c)
}

func (c *conn) rollback() {
	clear(c.writes)
	c.end()
}

func (c *conn) end() {
	c.order, c.begun, c.waits = c.order[:0], false, nil
	for key, holder := range c.db.locks {
		if holder == c {
			delete(c.db.locks, key)
		}
	}
}

// commit makes the session's writes those of the database.
func (c *conn) commit() {
	if len(c.order) > 0 {
		c.db.w.tally["mysql: transaction committed"]++
		c.db.checkCommit(c)
		undo := map[string]*row{}
		for _, key := range c.order {
			undo[key] = nil
			if r, ok := c.db.rows[key]; ok {
				undo[key] = &r
			}
			c.db.rows[key] = c.writes[key]
		}
		c.db.undo = append(c.db.undo, undo)
		if len(c.db.undo) > keptCommits {
			c.db.undo = c.db.undo[1:]
		}
		c.db.w.note("mysql: committed %v", c.order)
	}
	clear(c.writes)
	c.end()
}

// failover loses the last n commits and all sessions.
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
		for key, r := range last {
			if r == nil {
				delete(db.rows, key)
			} else {
				db.rows[key] = *r
			}
		}
	}
}

// cut ends all sessions.
func (db *database) cut() {
	db.late = nil
	for len(db.conns) > 0 {
		db.conns[0].breakOff()
	}
}

// floor returns a partition's position in the oldest state that a failover can lead to.
func (db *database) floor(key string) row {
	r, ok := db.rows[key]
	for i := len(db.undo) - 1; i >= 0; i-- {
		if before, changed := db.undo[i][key]; changed {
			if ok = before != nil; ok {
				r = *before
			}
		}
	}
	if !ok {
		return row{}
	}
	return r
}
