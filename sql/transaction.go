package sql

import (
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/sethvargo/go-retry"
)

// errRollback asks transact to end the transaction without changes and without an error: all has been read.
var errRollback = errors.New("roll back")

// transact runs steps in one READ COMMITTED transaction, and all of it again after a deadlock or a lock wait timeout:
// steps may run several times. A COMMIT without a clear answer is *UnknownOutcomeError, and never repeated.
func (s *Store) transact(ctx context.Context, steps func(context.Context, *sqlx.Tx) error) error {
	var backoff retry.Backoff // made when it is needed: the jitter seeds a generator of its own
	wait := retry.BackoffFunc(func() (time.Duration, bool) {
		if backoff == nil {
			backoff = s.backoff()
		}
		return backoff.Next()
	})
	return retry.Do(ctx, wait, func(ctx context.Context) error { return s.transactOnce(ctx, steps) })
}

func (s *Store) backoff() retry.Backoff {
	backoff := retry.NewExponential(s.options.RetryBackoff)
	backoff = retry.WithCappedDuration(s.options.RetryBackoffMax, backoff)
	backoff = retry.WithJitterPercent(50, backoff)
	return retry.WithMaxRetries(uint64(s.options.Retries), backoff)
}

// transactOnce marks what transact shall repeat as retry.RetryableError.
func (s *Store) transactOnce(ctx context.Context, steps func(context.Context, *sqlx.Tx) error) error {
	conn, err := s.db.Connx(ctx)
	if err != nil {
		return err
	}
	// A connection whose transaction did not end for certain must not be used again: its next START TRANSACTION would
	// commit what is still open.
	ended := false
	defer func() {
		if !ended {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // makes the pool close it
		}
		_ = conn.Close() // the pool's, or closed already: nothing left to fail
	}()

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
		case hasNumber(err, errDeadlock), hasNumber(err, errLockWaitTimeout):
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
