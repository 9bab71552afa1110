package sql

import (
	"cmp"
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/sethvargo/go-retry"
)

// errRollback asks transact to end the transaction without changes and without an error: all has been read.
var errRollback = errors.New("roll back")

// transact runs steps in one READ COMMITTED transaction, and all of it again after a deadlock or a lock wait timeout:
// steps may run several times. A COMMIT without a clear answer is *UnknownOutcomeError, and never repeated.
func (s *Store) transact(ctx context.Context, steps func(context.Context, *sqlx.Tx) error) error {
	var wait time.Duration // doubles up to the maximum; each is up to 50 % shorter or longer
	backoff := retry.BackoffFunc(func() (time.Duration, bool) {
		wait = min(max(2*wait, s.options.RetryBackoff), s.options.RetryBackoffMax)
		return wait/2 + rand.N(wait), false
	})
	return retry.Do(ctx, retry.WithMaxRetries(uint64(s.options.Retries), backoff), func(ctx context.Context) error {
		return s.transactOnce(ctx, steps)
	})
}

// transactOnce marks what transact shall repeat as retry.RetryableError.
func (s *Store) transactOnce(ctx context.Context, steps func(context.Context, *sqlx.Tx) error) error {
	conn, err := s.db.Connx(ctx)
	if err != nil {
		return err
	}
	ended := false
	defer func() { release(conn, ended) }()
	// The context ends statements, not the transaction: else database/sql rolls back behind our back, does not tell
	// whether that worked, and a COMMIT it never sent looks like one without an answer.
	tx, err := conn.BeginTxx(context.WithoutCancel(ctx), &stdsql.TxOptions{Isolation: stdsql.LevelReadCommitted})
	if err != nil {
		return err
	}
	err = steps(ctx, tx)
	if err == nil {
		err = ctx.Err() // no COMMIT for a caller that has gone
	}
	if err != nil {
		ended = tx.Rollback() == nil
		switch {
		case err == errRollback:
			return nil
		case isConflict(err):
			s.log.Debug("mysql transaction lost a lock conflict", "error", err)
			s.conflicts.Add(1)
			return retry.RetryableError(err)
		}
		return err
	}
	err = tx.Commit()
	switch {
	case err == nil:
		ended = true
		return nil
	case hasNumber(err, errDeadlock): // of a cluster's nodes; it says that the transaction was rolled back
		s.conflicts.Add(1)
		return retry.RetryableError(err)
	}
	return &UnknownOutcomeError{Err: err}
}

// release gives a connection back to the pool. If its transaction did not end for certain, the pool must close it: the
// next START TRANSACTION would commit what is still open.
func release(conn *sqlx.Conn, ended bool) {
	if !ended {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // makes the pool close it
	}
	_ = conn.Close() // the pool's, or closed already: nothing left to fail
}

// compareAndSwap runs the UPDATE that moves a position, which makes a transaction happen once. It comes first: the row
// lock that it takes keeps everybody else off this partition until the end.
func compareAndSwap(ctx context.Context, tx *sqlx.Tx, update string, args ...any) error {
	result, err := tx.ExecContext(ctx, update, args...)
	if err != nil {
		return err
	}
	changed, err := result.RowsAffected()
	if err != nil {
		return err
	}
	if changed != 1 {
		return ErrPositionMoved
	}
	return nil
}

// statementText is what stands around the rows of a statement, and between them (nothing: a comma). Of upserts it is
// INSERT … ON DUPLICATE KEY UPDATE with VALUES(), deprecated in MySQL, but the only form that MariaDB knows too.
type statementText struct{ prefix, suffix, between string }

// eachStatement calls send with as many statements as limit bytes each need for the rows, of which each has at least
// one. appendRow appends nothing for a row to skip. Rows go as text, not by placeholders: they are numbers, and names
// that were checked, so there is nothing to escape.
func eachStatement[R any](limit int, around statementText, rows []R,
	appendRow func([]byte, R) []byte, send func(text string) error,
) error {
	text := []byte(around.prefix)
	between := cmp.Or(around.between, ",")
	for _, row := range rows {
		end := len(text)
		first := end == len(around.prefix)
		if !first {
			text = append(text, between...)
		}
		begin := len(text)
		text = appendRow(text, row)
		switch {
		case len(text) == begin:
			text = text[:end]
		case !first && len(text)+len(around.suffix) > limit:
			if err := send(string(text[:end]) + around.suffix); err != nil {
				return err
			}
			text = append(text[:len(around.prefix)], text[begin:]...)
		}
	}
	if len(text) == len(around.prefix) {
		return nil
	}
	return send(string(text) + around.suffix)
}

func execute(ctx context.Context, tx *sqlx.Tx) func(text string) error {
	return func(text string) error {
		_, err := tx.ExecContext(ctx, text)
		return err
	}
}
