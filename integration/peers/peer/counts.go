package peer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver's name is "mysql"
	"github.com/jmoiron/sqlx"
)

const (
	// createLikeCount is the table that every contender ends with.
	createLikeCount = `CREATE TABLE IF NOT EXISTS like_count (
		post_id BIGINT UNSIGNED NOT NULL PRIMARY KEY, count BIGINT NOT NULL) ENGINE=InnoDB`

	// flushEvery is how often MySQL is written to under load. The peer has the newest counts meanwhile.
	flushEvery = 50 * time.Millisecond
	// maxDirty bounds the posts that wait for MySQL. Whoever brings more waits.
	maxDirty = 500_000
	// upsertBytes bounds a statement. From 64 to 512 KiB made no difference (docs/performance.md), and MySQL's
	// max_allowed_packet is at least 1 MiB everywhere.
	upsertBytes = 256 << 10
)

func openDatabase(ctx context.Context, dsn string) (*sqlx.DB, error) {
	db, err := sqlx.ConnectContext(ctx, "mysql", dsn)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	if _, err := db.ExecContext(ctx, createLikeCount); err != nil {
		db.Close()
		return nil, fmt.Errorf("create like_count: %w", err)
	}
	return db, nil
}

// Count is how many like a post.
type Count struct {
	Post  uint64
	Likes int64
}

// Counts brings absolute counts into like_count in the background: whatever has changed since the last transaction is
// the next one, so that a post that changes often is written seldom. Being absolute, they may be written twice.
type Counts struct {
	db    *sqlx.DB
	lines *Lines

	wake chan struct{} // holds one token while something is dirty
	slot chan struct{} // holds one token after a transaction took the dirty posts

	mu     sync.Mutex
	dirty  map[uint64]int64
	events int64 // that the counts in dirty and before hold, since the beginning of the topic
	done   []func()

	text []byte // of Run alone
}

// NewCounts makes a Counts whose Run must be running, or Set blocks.
func (p *Peer) NewCounts() *Counts {
	return &Counts{db: p.DB, lines: p.Lines, dirty: map[uint64]int64{}, wake: make(chan struct{}, 1),
		slot: make(chan struct{}, 1)}
}

// Set says that so many more events are in the counts, and which posts they gave a new count: possibly none. done, if
// there is one, is called once all of that is committed; it must not block. Set waits while too many posts are dirty.
func (c *Counts) Set(ctx context.Context, changed []Count, events int64, done func()) error {
	for !c.add(changed, events, done) {
		select {
		case <-c.slot:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *Counts) add(changed []Count, events int64, done func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.dirty) >= maxDirty {
		return false
	}
	for _, count := range changed {
		c.dirty[count.Post] = count.Likes
	}
	c.events += events
	if done != nil {
		c.done = append(c.done, done)
	}
	token(c.wake)
	return true
}

func token(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Run writes until ctx is done, and then once more what is dirty by then.
func (c *Counts) Run(ctx context.Context) error {
	pace := time.NewTimer(0)
	defer pace.Stop()
	for {
		select {
		case <-c.wake:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
			defer cancel()
			return c.flush(last)
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
		pace.Reset(flushEvery)
		// A transaction that has begun is finished: its outcome would be unknown otherwise.
		if err := c.flush(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
}

func (c *Counts) flush(ctx context.Context) error {
	c.mu.Lock()
	dirty, events, done := c.dirty, c.events, c.done
	c.dirty, c.done = make(map[uint64]int64, min(len(dirty), 1<<16)), nil
	c.mu.Unlock()
	token(c.slot)
	if err := c.upsert(ctx, dirty); err != nil {
		return fmt.Errorf("write %d posts to like_count: %w", len(dirty), err)
	}
	if err := c.lines.Committed(events); err != nil {
		return err
	}
	for _, f := range done {
		f()
	}
	return nil
}

// upsert writes counts in one transaction: sorted, since that is the order of the table, and many rows a statement.
// Numbers need no quoting, and a statement as text is one round trip where a prepared one of varying length is three.
func (c *Counts) upsert(ctx context.Context, dirty map[uint64]int64) error {
	if len(dirty) == 0 {
		return nil
	}
	tx, err := c.db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // of no effect after the commit
	posts := slices.Sorted(maps.Keys(dirty))
	for i, post := range posts {
		if len(c.text) == 0 {
			c.text = append(c.text, "INSERT INTO like_count (post_id, count) VALUES "...)
		} else {
			c.text = append(c.text, ',')
		}
		c.text = append(c.text, '(')
		c.text = strconv.AppendUint(c.text, post, 10)
		c.text = append(c.text, ',')
		c.text = strconv.AppendInt(c.text, dirty[post], 10)
		c.text = append(c.text, ')')
		if len(c.text) > upsertBytes || i == len(posts)-1 {
			statement := string(c.text) + " ON DUPLICATE KEY UPDATE count=VALUES(count)"
			c.text = c.text[:0]
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}
