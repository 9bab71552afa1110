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

// errRollback makes transact roll back and return nil: the steps only had to read.
var errRollback = errors.New("roll back")

// transact runs steps in one READ COMMITTED transaction. After a deadlock or a lock wait timeout it retries the whole
// transaction, so steps may run several times. It never retries a COMMIT without a clear answer, but returns
// *UnknownOutcomeError.
func (s *Store) transact(ctx context.Context, steps func(context.Context, *sqlx.Tx) error) error {
	var wait time.Duration // doubles up to the maximum; jitter makes each wait up to 50% shorter or longer
	backoff := retry.BackoffFunc(func() (time.Duration, bool) {
		wait = min(max(2*wait, s.options.RetryBackoff), s.options.RetryBackoffMax)
		return wait/2 + rand.N(wait), false
	})
	return retry.Do(ctx, retry.WithMaxRetries(uint64(s.options.Retries), backoff), func(ctx context.Context) error {
		return s.transactOnce(ctx, steps)
	})
}

// transactOnce returns retry.RetryableError for failures that transact should retry.
func (s *Store) transactOnce(ctx context.Context, steps func(context.Context, *sqlx.Tx) error) error {
	conn, err := s.db.Connx(ctx)
	if err != nil {
		return err
	}
	ended := false
	defer func() { release(conn, ended) }()
	// The context cancels statements, not the transaction. Otherwise database/sql rolls back in the background without
	// saying whether it worked, and a COMMIT that was never sent looks like one without an answer.
	tx, err := conn.BeginTxx(context.WithoutCancel(ctx), &stdsql.TxOptions{Isolation: stdsql.LevelReadCommitted})
	if err != nil {
		return err
	}
	err = steps(ctx, tx)
	if err == nil {
		err = ctx.Err() // no COMMIT for a caller that is gone
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
	case hasNumber(err, errDeadlock): // from a cluster (Galera): the transaction was rolled back
		s.conflicts.Add(1)
		return retry.RetryableError(err)
	}
	return &UnknownOutcomeError{Err: err}
}

// release returns a connection to the pool. If its transaction did not end for certain, the pool has to close it,
// because the next START TRANSACTION would commit the open one.
func release(conn *sqlx.Conn, ended bool) {
	if !ended {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // makes the pool close it
	}
	_ = conn.Close() // returned to the pool or already closed: no error to handle
}

// compareAndSwap runs the UPDATE that moves a position, so that a transaction takes effect only once. It comes first:
// its row lock keeps all others off this partition until the transaction ends.
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

// statementText is the text around the rows of a statement, and between them (default: a comma). Upserts are INSERT …
// ON DUPLICATE KEY UPDATE with VALUES(): MySQL deprecates that form, but MariaDB has no other.
type statementText struct{ prefix, suffix, between string }

// eachStatement calls send with as many statements as needed to keep each within limit bytes; each has at least one
// row. appendRow appends nothing for a row to skip. Values go into the text, not into placeholders: they are numbers
// and validated names, so nothing needs escaping.
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
