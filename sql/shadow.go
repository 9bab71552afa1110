package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/sethvargo/go-retry"
)

// Shadow builds the tables anew beside those that are in use, and puts them in their place in one RENAME TABLE.
//
//	NewShadow ──► AddCounts, AddHours, SetPositions ──► Swap ──► Close
//
// A RENAME waits for every transaction that has touched one of the tables, and keeps new ones waiting meanwhile. So a
// transaction of Apply sees the old tables, all of them, or the new ones: one that waits in the middle is made to fail
// as a deadlock, and is repeated whole, where its compare-and-swap finds another position.
//
// Whatever ends before Swap leaves only tables named *_rebuild behind, which the next NewShadow drops.
type Shadow struct {
	db        *sqlx.DB
	conn      *sqlx.Conn // holds shadowLock, and does everything: without the lock, nothing can be written
	log       *slog.Logger
	packet    *packetLimit
	statement int // longest statement in bytes
	shard     Shard
	server    string

	renamePause, writeBackoff time.Duration // before another try
}

// The tables, in the order in which they are made and renamed.
var shadowed = []string{"like_count", "like_hourly", "applied_offset"}

const (
	shadowSuffix = "_rebuild"
	// OldSuffix ends the names under which Swap leaves the tables that were in use.
	OldSuffix = "_before_rebuild"

	shadowLock = "kudos.rebuild"
	// shadowRows is how many rows one transaction inserts.
	shadowRows = 20_000
	// renameWait is how long one RENAME waits for open transactions. New statements on the tables wait behind it, so
	// it is short, and tried again.
	renameWait    = 2 * time.Second
	renameRetries = 60
	renamePause   = 500 * time.Millisecond
	// writeRetries bounds how often rows are sent again after a lock conflict: other rebuilds are kept away, but not
	// whoever else looks at the tables.
	writeRetries = 5
	writeBackoff = 100 * time.Millisecond
	// closeTimeout bounds dropping what was not put in place.
	closeTimeout = 15 * time.Second
)

// NewShadow makes empty shadow tables; one that an earlier run left is dropped. It refuses while another process has
// one on this server. It needs CREATE, DROP and ALTER on the database, and connections of its own.
func NewShadow(ctx context.Context, o Options, log *slog.Logger) (_ *Shadow, err error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("mysql options: %w", err)
	}
	// As for migrations: a statement on a large table may take long.
	config, err := migrationConfig(o, log)
	if err != nil {
		return nil, fmt.Errorf("mysql options: %w", err)
	}
	connections, err := newConnector(config)
	if err != nil {
		return nil, fmt.Errorf("mysql options: %w", err)
	}
	db, packet := openPool(connections, config.Timeout, 2, 0) // one works, the other looks when the first was lost
	h := &Shadow{db: db, log: log, packet: packet, statement: o.MaxStatementBytes, shard: o.Shard, server: o.server(),
		renamePause: renamePause, writeBackoff: writeBackoff}
	defer func() {
		if err != nil {
			err = errors.Join(h.describe(err, "make shadow tables"), h.Close())
		}
	}()
	if h.conn, err = db.Connx(ctx); err != nil {
		return nil, err
	}
	var got stdsql.NullBool
	if err := h.conn.GetContext(ctx, &got, "SELECT GET_LOCK(?, 1)", shadowLock); err != nil {
		return nil, err
	}
	if !got.Bool {
		return nil, errors.New("another `kudos rebuild` is at work on this server; wait for it to end")
	}
	if err := checkSchema(ctx, db); err != nil {
		return nil, err
	}
	if err := checkShard(ctx, h.conn, o.Shard); err != nil {
		return nil, err
	}
	for _, table := range shadowed {
		if err := h.exec(ctx, "DROP TABLE IF EXISTS "+table+shadowSuffix); err != nil {
			return nil, err
		}
		if err := h.exec(ctx, "CREATE TABLE "+table+shadowSuffix+" LIKE "+table); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// String tells people which database it is, without user and password.
func (h *Shadow) String() string { return h.server }

func (h *Shadow) exec(ctx context.Context, statement string) error {
	_, err := h.conn.ExecContext(ctx, statement)
	return err
}

func (h *Shadow) describe(err error, what string) error {
	return describe(err, "%s in MySQL at %s", what, h.server)
}

// Setting what is there, and not adding to it: rows may be sent again after an unknown outcome.
var (
	shadowCount = statementText{
		prefix: "INSERT INTO like_count" + shadowSuffix + " (post_id, `count`, dislike_count) VALUES ",
		suffix: " ON DUPLICATE KEY UPDATE `count` = VALUES(`count`), dislike_count = VALUES(dislike_count)",
	}
	shadowHour = statementText{
		prefix: "INSERT INTO like_hourly" + shadowSuffix + " (hour, region, partition_id, likes, dislikes) VALUES ",
		suffix: " ON DUPLICATE KEY UPDATE likes = VALUES(likes), dislikes = VALUES(dislikes)",
	}
)

// AddCounts fills like_count; each post once. In the order of posts it is fastest.
func (h *Shadow) AddCounts(ctx context.Context, counts []CountDelta) error {
	return shadowInsert(ctx, h, shadowCount, counts, appendCount)
}

// AddHours fills like_hourly with rows of one partition; each hour and region once.
func (h *Shadow) AddHours(ctx context.Context, partition int32, hours []HourDelta) error {
	if err := checkHours(hours); err != nil {
		return err
	}
	return shadowInsert(ctx, h, shadowHour, hours, appendHour(partition))
}

func shadowInsert[R any](ctx context.Context, h *Shadow, around statementText, rows []R, appendRow func([]byte, R) []byte) error {
	for len(rows) > 0 {
		n := min(len(rows), shadowRows)
		err := h.write(ctx, func(tx *sqlx.Tx) error {
			return upsert(ctx, tx, h.packet.statementBytes(h.statement), around, rows[:n], appendRow)
		})
		if err != nil {
			return h.describe(err, "fill shadow tables")
		}
		rows = rows[n:]
	}
	return nil
}

// write does something in a transaction, and all of it again after a lock conflict.
func (h *Shadow) write(ctx context.Context, do func(*sqlx.Tx) error) error {
	backoff := retry.WithMaxRetries(writeRetries, retry.NewExponential(h.writeBackoff))
	return retry.Do(ctx, backoff, func(ctx context.Context) error {
		err := h.writeOnce(ctx, do)
		if hasNumber(err, errDeadlock) || hasNumber(err, errLockWaitTimeout) {
			return retry.RetryableError(err)
		}
		return err
	})
}

func (h *Shadow) writeOnce(ctx context.Context, do func(*sqlx.Tx) error) error {
	tx, err := h.conn.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		if rollbackErr := tx.Rollback(); !errors.Is(rollbackErr, stdsql.ErrTxDone) {
			err = errors.Join(err, rollbackErr)
		}
		return err
	}
	return tx.Commit()
}

// SetPositions fills applied_offset: up to where what was added counts, for each partition of the log that is of this
// shard. positions are those of all.
func (h *Shadow) SetPositions(ctx context.Context, src Source, positions []Position) error {
	if len(positions) != int(src.Partitions) {
		return fmt.Errorf("%d positions for %d partitions", len(positions), src.Partitions)
	}
	err := h.write(ctx, func(tx *sqlx.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM applied_offset"+shadowSuffix); err != nil {
			return err
		}
		for partition, at := range positions {
			if !h.shard.Has(int32(partition)) {
				continue
			}
			_, err := tx.ExecContext(ctx,
				"INSERT INTO applied_offset"+shadowSuffix+" (topic, partition_id, topic_id, partitions, next_offset, next_seq, leader_epoch)"+
					" VALUES (?, ?, ?, ?, ?, ?, ?)",
				src.Topic, partition, src.topicID(), src.Partitions, at.NextOffset, at.NextSeq, at.LeaderEpoch)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return h.describe(err, "fill shadow tables")
	}
	return nil
}

// Swap puts the shadow tables in the place of those in use, all in one statement. Those are kept under names with
// OldSuffix, in the place of what an earlier Swap kept; or dropped.
func (h *Shadow) Swap(ctx context.Context, dropOld bool) error {
	if err := h.swap(ctx); err != nil {
		return h.describe(err, "put the new tables in place")
	}
	if !dropOld {
		return nil
	}
	if err := h.dropOld(ctx); err != nil {
		return h.describe(err, "the new tables are in place; drop the old ones")
	}
	return nil
}

func (h *Shadow) dropOld(ctx context.Context) error {
	for _, table := range shadowed {
		if err := h.exec(ctx, "DROP TABLE IF EXISTS "+table+OldSuffix); err != nil {
			return err
		}
	}
	return nil
}

func (h *Shadow) swap(ctx context.Context) error {
	if err := h.dropOld(ctx); err != nil {
		return err
	}
	rename := "RENAME TABLE "
	for i, table := range shadowed {
		if i > 0 {
			rename += ", "
		}
		rename += table + " TO " + table + OldSuffix + ", " + table + shadowSuffix + " TO " + table
	}
	if err := h.exec(ctx, fmt.Sprintf("SET SESSION lock_wait_timeout = %d", int(renameWait/time.Second))); err != nil {
		return err
	}
	backoff := retry.WithMaxRetries(renameRetries, retry.NewConstant(h.renamePause))
	err := retry.Do(ctx, backoff, func(ctx context.Context) error {
		// Not cut short by ctx, or nobody would know whether it was done: it takes renameWait and little more.
		ctx = context.WithoutCancel(ctx)
		err := h.exec(ctx, rename)
		switch {
		case err == nil:
			return nil
		case hasNumber(err, errLockWaitTimeout), hasNumber(err, errDeadlock):
			h.log.Info("the tables are busy; trying the RENAME again", "error", err)
			return retry.RetryableError(err)
		}
		// An answer that was lost: it is all done, or nothing of it.
		if done, lookErr := h.swapped(ctx); lookErr == nil && done {
			return nil
		}
		return err
	})
	if hasNumber(err, errLockWaitTimeout) {
		return fmt.Errorf("%w: a transaction has held one of the tables all the time; find it in information_schema.innodb_trx, end it, and run this again", err)
	}
	return err
}

// swapped tells, by another connection, whether the shadow tables are in place: under their own names there is nothing
// any more.
func (h *Shadow) swapped(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	_, err := h.db.ExecContext(ctx, "SELECT post_id FROM "+shadowed[0]+shadowSuffix+" LIMIT 0")
	if hasNumber(err, errNoSuchTable) {
		return true, nil
	}
	return false, err
}

// Close ends the connection, and with it the lock. Shadow tables that were not put in place are dropped; where the
// connection was lost they stay, for the next NewShadow to drop.
func (h *Shadow) Close() error {
	if h.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		for _, table := range shadowed {
			if err := h.exec(ctx, "DROP TABLE IF EXISTS "+table+shadowSuffix); err != nil {
				h.log.Warn("a shadow table is left behind; the next `kudos rebuild` drops it", "table", table+shadowSuffix, "error", err)
				break
			}
		}
		_ = h.conn.Close()
	}
	return h.db.Close()
}
