package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"

	"kudos/integration/peers/peer"
)

const (
	// Retried, as a whole transaction: the server has rolled it back.
	errDeadlock = 1213
	// A like has deadlocked that often in a row: something else is wrong.
	maxDeadlocks = 100
)

// worker does the likes that are handed to it, one transaction each, in order.
type worker struct {
	conn  *sql.Conn
	call  *sql.Stmt
	queue chan task
}

// task is one like, and the batch that it belongs to.
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
			return fmt.Errorf("take an action of user %d for post %d: %w", t.event.User, t.event.Post, err)
		}
		t.batch.finishOne()
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
		var refused *mysql.MySQLError
		if errors.As(err, &refused) && refused.Number == errDeadlock && deadlocks < maxDeadlocks {
			continue
		}
		return err
	}
}

func (w *worker) close() error { return errors.Join(w.call.Close(), w.conn.Close()) }
