package sql

import (
	"cmp"
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/sethvargo/go-retry"
)

// CountDelta is the net change of one post over a range.
type CountDelta struct {
	PostID          uint64
	Likes, Dislikes int64
}

// HourDelta is the net change of one region in one hour over a range.
type HourDelta struct {
	Hour            int64  // since 1970-01-01 00:00 UTC
	Region          string // ISO 3166-1 or 3166-2 code, upper case; ZZ if unknown
	Likes, Dislikes int64
}

// Apply applies the range [from, to) of a partition exactly once: one transaction moves the stored position from → to
// and adds the deltas. It sorts counts and hours in place and skips zero deltas. A key may occur more than once.
//
// It fails with ErrPositionMoved (nothing changed) or *UnknownOutcomeError (possibly applied). After either, read
// Position and resume there. Apply retries deadlocks and lock wait timeouts up to Options.Retries times.
func (s *Store) Apply(ctx context.Context, src Source, partition int32, from, to Position,
	counts []CountDelta, hours []HourDelta,
) (err error) {
	defer func() {
		err = describe(err, "apply %s/%d [%d, %d) to MySQL at %s",
			src.Topic, partition, from.NextOffset, to.NextOffset, s)
	}()
	if err := s.check(src, partition); err != nil {
		return err
	}
	// The compare-and-swap does not change the position of an empty range, so it would succeed every time.
	if from.NextOffset < 0 || to.NextOffset <= from.NextOffset || to.NextSeq < from.NextSeq {
		return fmt.Errorf("range from offset %d seq %d to offset %d seq %d is empty or runs backwards",
			from.NextOffset, from.NextSeq, to.NextOffset, to.NextSeq)
	}
	if err := checkHours(hours); err != nil {
		return err
	}
	// All transactions lock rows in the same order, so they wait for each other instead of deadlocking.
	slices.SortFunc(counts, func(a, b CountDelta) int { return cmp.Compare(a.PostID, b.PostID) })
	slices.SortFunc(hours, func(a, b HourDelta) int {
		return cmp.Or(cmp.Compare(a.Hour, b.Hour), cmp.Compare(a.Region, b.Region))
	})
	return s.transact(ctx, func(ctx context.Context, tx *sqlx.Tx) error {
		err := compareAndSwap(ctx, tx,
			"UPDATE applied_offset SET next_offset = ?, next_seq = ?, leader_epoch = ?, updated_at = UTC_TIMESTAMP(3)"+
				" WHERE topic = ? AND partition_id = ? AND topic_id = ? AND partitions = ?"+
				" AND next_offset = ? AND next_seq = ?",
			to.NextOffset, to.NextSeq, to.LeaderEpoch,
			src.Topic, partition, src.topicID(), src.Partitions, from.NextOffset, from.NextSeq)
		if err != nil {
			return err
		}
		limit, exec := s.packet.statementBytes(), execute(ctx, tx)
		if err := eachStatement(limit, countUpsert, counts, appendCount, exec); err != nil {
			return err
		}
		return eachStatement(limit, hourUpsert, hours, appendHour(partition), exec)
	})
}

var errRollback = errors.New("roll back") // makes transact roll back and return nil: the steps only had to read

// transact runs steps in one READ COMMITTED transaction. After a deadlock or lock wait timeout it retries all of it, so
// steps may run several times. It never retries a COMMIT without a clear answer, but returns *UnknownOutcomeError.
func (s *Store) transact(ctx context.Context, steps func(context.Context, *sqlx.Tx) error) error {
	var wait time.Duration // doubles up to the maximum; jitter makes each wait up to 50% shorter or longer
	backoff := retry.BackoffFunc(func() (time.Duration, bool) {
		wait = min(max(2*wait, s.options.RetryBackoff), s.options.RetryBackoffMax)
		return wait/2 + rand.N(wait), false
	})
	err := retry.Do(ctx, retry.WithMaxRetries(uint64(s.options.Retries), backoff), func(ctx context.Context) error {
		return s.transactOnce(ctx, steps)
	})
	if hasNumber(err, errNoSuchTable) || hasNumber(err, errNoColumn) {
		if why := checkSchema(ctx, s.db); errors.As(why, new(*SchemaError)) { // whether a migration creates it
			return why
		}
	}
	return err
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

// An insert takes the default of updated_at, an update takes the server's clock. A literal in every row made the whole
// transaction about 10% slower (MariaDB 10.11, 1,000 and 50,000 posts).
var (
	countUpsert = statementText{
		prefix: "INSERT INTO like_count (post_id, `count`, dislike_count) VALUES ",
		suffix: " ON DUPLICATE KEY UPDATE `count` = `count` + VALUES(`count`)," +
			" dislike_count = dislike_count + VALUES(dislike_count), updated_at = UTC_TIMESTAMP(3)",
	}
	hourUpsert = statementText{
		prefix: "INSERT INTO like_hourly (hour, region, partition_id, likes, dislikes) VALUES ",
		suffix: " ON DUPLICATE KEY UPDATE likes = likes + VALUES(likes), dislikes = dislikes + VALUES(dislikes)",
	}
)

func appendCount(text []byte, d CountDelta) []byte {
	if d.Likes == 0 && d.Dislikes == 0 {
		return text
	}
	text = strconv.AppendUint(append(text, '('), d.PostID, 10)
	text = strconv.AppendInt(append(text, ','), d.Likes, 10)
	text = strconv.AppendInt(append(text, ','), d.Dislikes, 10)
	return append(text, ')')
}

func appendHour(partition int32) func([]byte, HourDelta) []byte {
	return func(text []byte, d HourDelta) []byte {
		if d.Likes == 0 && d.Dislikes == 0 {
			return text
		}
		hour := hourTime(d.Hour).Format(time.DateTime)
		return fmt.Appendf(text, "('%s','%s',%d,%d,%d)", hour, d.Region, partition, d.Likes, d.Dislikes)
	}
}

func hourTime(hour int64) time.Time { return time.Unix(hour*3600, 0).UTC() }

const (
	firstHour = -8_502_840 // 1000-01-01 00:00 UTC, the start of the DATETIME range
	lastHour  = 70_389_527 // 9999-12-31 23:00 UTC, the end of it
)

// checkHours rejects values that the table cannot hold, before they are written into SQL text.
func checkHours(hours []HourDelta) error {
	for _, h := range hours {
		if h.Hour < firstHour || h.Hour > lastHour {
			return fmt.Errorf("hour %d is outside the years 1000 to 9999", h.Hour)
		}
		if !isRegion(h.Region) {
			return fmt.Errorf("region %q is not of the form AA or AA-AAA", h.Region)
		}
	}
	return nil
}

func isRegion(region string) bool { return isName(region, 6, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") }

// isName reports whether text is 1 to most bytes long and consists of the given characters only.
func isName(text string, most int, characters string) bool {
	return text != "" && len(text) <= most && strings.Trim(text, characters) == ""
}

// statementText is the text around the rows of a statement, and between them (default: a comma). Upserts are INSERT …
// ON DUPLICATE KEY UPDATE with VALUES(): MySQL deprecates that form, but MariaDB has no other.
type statementText struct{ prefix, suffix, between string }

// eachStatement calls send with as many statements as needed to keep each within limit bytes; each has at least one
// row. appendRow appends nothing for a row to skip. Values are numbers and validated names: no placeholders.
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
