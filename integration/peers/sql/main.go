// Command sql is peer (d): likes counted in MySQL alone, one transaction a like, at its best.
//
// Of the topic likes come like_pair, which has the last action of each user for each post, and like_count. A like is
// one call of a stored procedure, whose transaction puts the pair, learns under the lock of its row what was there
// before, and moves the count by what that changed.
//
//	Kafka ─► read ─► workers, by pair or post, a connection each ─► CALL take_like(post, user, action)
//	           └──► batches in order, finished ─► offsets
//
// The pair makes redelivery harmless. Offsets are committed when all events before them are.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"
	"golang.org/x/sync/errgroup"

	"kudos/integration/peers/peer"
)

const (
	group       = "sql-likes"
	workers     = 64  // a connection each: see README.md for how the number was found
	batchEvents = 500 // the largest poll batch: a small one, since offsets are those of whole batches
	batches     = 8   // in flight, so that no worker waits for the slowest one of a batch
	queueTasks  = 64  // likes that wait for a worker; the reader waits while the queue is full
)

// tables makes what is missing. The procedure takes one round trip a like, not four. The upsert's row count tells what
// was there: 1 nothing, 2 another action, 0 the same. The count's row, for which a post's likes queue, is locked last.
var tables = []string{`CREATE TABLE IF NOT EXISTS like_pair (
	post_id BIGINT UNSIGNED NOT NULL,
	user_id BIGINT UNSIGNED NOT NULL,
	action TINYINT NOT NULL,
	PRIMARY KEY (post_id, user_id)
) ENGINE=InnoDB`, "DROP PROCEDURE IF EXISTS take_like", `
CREATE PROCEDURE take_like(IN post BIGINT UNSIGNED, IN liker BIGINT UNSIGNED, IN new_action TINYINT)
BEGIN
	DECLARE changed INT;
	DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
	START TRANSACTION;
	INSERT INTO like_pair (post_id, user_id, action) VALUES (post, liker, new_action)
		ON DUPLICATE KEY UPDATE action = VALUES(action);
	SET changed = ROW_COUNT();
	IF new_action = 1 AND changed > 0 THEN
		INSERT INTO like_count (post_id, count) VALUES (post, 1) ON DUPLICATE KEY UPDATE count = count + 1;
	ELSEIF new_action = 0 AND changed = 2 THEN
		UPDATE like_count SET count = count - 1 WHERE post_id = post;
	END IF;
	COMMIT;
END`}

func main() { peer.Main(count, state) }

// batch is a poll batch that workers have parts of.
type batch struct {
	*peer.Batch
	left     atomic.Int64
	finished chan struct{} // closed by whoever finishes the last event
}

func count(ctx context.Context, p *peer.Peer) error {
	for _, statement := range tables {
		if _, err := p.DB.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("prepare the database: %w", err)
		}
	}
	likes, err := p.OpenLikes(group, batchEvents)
	if err != nil {
		return err
	}
	defer likes.Close()
	g, ctx := errgroup.WithContext(ctx)
	var team []*worker
	for range workers {
		w, err := newWorker(ctx, p.DB)
		if err != nil {
			return err
		}
		defer w.close() // of a connection that may be broken: nothing is left to lose
		team = append(team, w)
	}
	for _, w := range team {
		g.Go(func() error { return w.run(ctx) })
	}
	inFlight := make(chan *batch, batches) // closed by the reader
	g.Go(func() error {
		defer close(inFlight)
		for _, w := range team {
			defer close(w.queue)
		}
		return read(ctx, likes, team, inFlight)
	})
	g.Go(func() error { return finish(ctx, inFlight, p.Lines) })
	return g.Wait()
}

// read hands out what it reads: all of a pair to one worker, so that it stays in order.
func read(ctx context.Context, likes *peer.Likes, team []*worker, inFlight chan<- *batch) error {
	for {
		polled, err := likes.Poll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		b := &batch{Batch: polled, finished: make(chan struct{})}
		b.left.Store(int64(len(polled.Events)))
		select {
		case inFlight <- b:
		case <-ctx.Done():
			return nil
		}
		for _, e := range polled.Events {
			select {
			case team[workerOf(e)].queue <- task{e, b}:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

func workerOf(e peer.Event) uint64 {
	h := (e.Post*0x9e3779b97f4a7c15 ^ e.User) * 0xff51afd7ed558ccd
	return h >> 32 % workers
}

func finish(ctx context.Context, inFlight <-chan *batch, lines *peer.Lines) error {
	var events int64
	for b := range inFlight {
		select {
		case <-b.finished:
		case <-ctx.Done():
			return nil
		}
		b.Done()
		events += b.Covers
		if err := lines.Committed(events); err != nil {
			return err
		}
	}
	return nil
}

// state is the size of like_pair, rebuilt, and its rows.
func state(ctx context.Context, p *peer.Peer) (bytes, pairs int64, err error) {
	rows, err := p.DB.QueryContext(ctx, "OPTIMIZE TABLE like_pair") // answers with rows
	if err == nil {
		err = rows.Close()
	}
	if err == nil {
		err = p.DB.GetContext(ctx, &bytes, "SELECT data_length + index_length FROM information_schema.tables "+
			"WHERE table_schema = DATABASE() AND table_name = 'like_pair'")
	}
	if err == nil {
		err = p.DB.GetContext(ctx, &pairs, "SELECT COUNT(*) FROM like_pair")
	}
	if err != nil {
		return 0, 0, fmt.Errorf("measure like_pair: %w", err)
	}
	return bytes, pairs, nil
}

const (
	errDeadlock  = 1213 // retried, as a whole transaction: the server has rolled it back
	maxDeadlocks = 100  // of a like in a row: after that, something else is wrong
)

// worker does the likes that are handed to it, one transaction each, in order.
type worker struct {
	conn  *sql.Conn
	call  *sql.Stmt
	queue chan task
}

type task struct {
	event peer.Event
	batch *batch
}

func newWorker(ctx context.Context, db *sqlx.DB) (*worker, error) {
	conn, err := db.DB.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect a worker: %w", err)
	}
	// Locks rows, not the gaps between them, into which other likes go.
	_, err = conn.ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
	w := &worker{conn: conn, queue: make(chan task, queueTasks)}
	if err == nil {
		w.call, err = conn.PrepareContext(ctx, "CALL take_like(?, ?, ?)")
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("prepare a worker: %w", err)
	}
	return w, nil
}

// run ends with the queue, or when ctx is done: what is left then was not committed to Kafka and is read again.
func (w *worker) run(ctx context.Context) error {
	for t := range w.queue {
		if ctx.Err() != nil {
			return nil
		}
		if err := w.take(ctx, t.event); err != nil {
			return fmt.Errorf("apply an action of user %d on post %d: %w", t.event.User, t.event.Post, err)
		}
		if t.batch.left.Add(-1) == 0 {
			close(t.batch.finished)
		}
	}
	return nil
}

func (w *worker) take(ctx context.Context, e peer.Event) error {
	action := 0
	if e.Like {
		action = 1
	}
	for deadlocks := 0; ; deadlocks++ {
		_, err := w.call.ExecContext(context.WithoutCancel(ctx), e.Post, e.User, action)
		refused, ok := errors.AsType[*mysql.MySQLError](err)
		if !ok || refused.Number != errDeadlock || deadlocks >= maxDeadlocks {
			return err
		}
	}
}

func (w *worker) close() error { return errors.Join(w.call.Close(), w.conn.Close()) }
