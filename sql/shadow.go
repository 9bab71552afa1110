package sql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/sethvargo/go-retry"
)

// Shadow builds new tables next to the current ones, and replaces all of them with one RENAME TABLE.
//
//	NewShadow ──► AddCounts, AddHours, SetPositions ──► Swap ──► Close
//
// RENAME waits for every transaction that has touched one of the tables, and blocks new ones meanwhile. So a
// transaction of Apply sees either all old tables or all new ones. One that blocks halfway fails as a deadlock and is
// retried as a whole; its compare-and-swap then finds another position.
//
// A failure before Swap leaves at most tables named *_rebuild, which the next NewShadow drops.
type Shadow struct {
	store *Store
	conn  *sqlx.Conn // holds shadowLock and runs all writes, so that nothing is written after the lock is lost

	renamePause, writeBackoff time.Duration // before the next try
}

// shadowed are the tables to replace, in the order in which they are created and renamed.
var shadowed = []string{"like_count", "like_hourly", "applied_offset"}

const (
	shadowSuffix = "_rebuild"
	OldSuffix    = "_before_rebuild" // what Swap appends to the names of the replaced tables

	shadowLock = "kudos.rebuild"
	shadowRows = 20_000 // bounds the rows of one transaction
	// renameWait bounds one RENAME's wait for transactions. New statements wait behind it, so it is short, and retried.
	renameWait    = 2 * time.Second
	renameRetries = 60
	renamePause   = 500 * time.Millisecond
	writeRetries  = 5 // after a lock conflict; shadowLock excludes other rebuilds, not readers of the tables
	writeBackoff  = 100 * time.Millisecond
	closeTimeout  = 15 * time.Second // bounds dropping the shadow tables that were not swapped in
)

// NewShadow creates empty shadow tables and drops those of an earlier run. It fails while another process has a Shadow
// on this server. It needs the CREATE, DROP and ALTER privileges, and opens its own connections.
func NewShadow(ctx context.Context, o Options, log *slog.Logger) (*Shadow, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("mysql options: %w", err)
	}
	store, err := newUntimed(o, log)
	if err != nil {
		return nil, err
	}
	h := &Shadow{store: store, renamePause: renamePause, writeBackoff: writeBackoff}
	if err := h.create(ctx); err != nil {
		return nil, errors.Join(describe(err, "create shadow tables in MySQL at %s", h), h.Close())
	}
	return h, nil
}

func (h *Shadow) create(ctx context.Context) (err error) {
	if h.conn, err = h.store.db.Connx(ctx); err != nil {
		return err
	}
	var got stdsql.NullBool
	if err := h.conn.GetContext(ctx, &got, "SELECT GET_LOCK(?, 1)", shadowLock); err != nil {
		return err
	}
	if !got.Bool {
		return errors.New("another `kudos rebuild` is running on this server; wait for it to finish")
	}
	if err := checkSchema(ctx, h.store.db); err != nil {
		return err
	}
	if err := checkShard(ctx, h.conn, h.store.Shard()); err != nil {
		return err
	}
	if err := h.drop(ctx, shadowSuffix); err != nil {
		return err
	}
	for _, table := range shadowed {
		if err := h.exec(ctx, "CREATE TABLE "+table+shadowSuffix+" LIKE "+table); err != nil {
			return err
		}
	}
	return nil
}

// String names the database, without user and password.
func (h *Shadow) String() string { return h.store.String() }

func (h *Shadow) exec(ctx context.Context, statement string) error {
	_, err := h.conn.ExecContext(ctx, statement)
	return err
}

// The upserts assign instead of adding, so that rows can be sent again after an unknown outcome.
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

// AddCounts fills like_count. Each post must occur once; ascending order is fastest.
func (h *Shadow) AddCounts(ctx context.Context, counts []CountDelta) error {
	return shadowInsert(ctx, h, shadowCount, counts, appendCount)
}

// AddHours fills like_hourly with the rows of one partition. Each hour and region must occur once.
func (h *Shadow) AddHours(ctx context.Context, partition int32, hours []HourDelta) error {
	if err := checkHours(hours); err != nil {
		return err
	}
	return shadowInsert(ctx, h, shadowHour, hours, appendHour(partition))
}

func shadowInsert[R any](ctx context.Context, h *Shadow, around statementText, rows []R,
	appendRow func([]byte, R) []byte,
) error {
	for chunk := range slices.Chunk(rows, shadowRows) {
		err := h.write(ctx, func(tx *sqlx.Tx) error {
			return eachStatement(h.store.packet.statementBytes(), around, chunk, appendRow, execute(ctx, tx))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// SetPositions fills applied_offset for the partitions of this shard. positions has those of all partitions of the log,
// each up to where the added counts reach.
func (h *Shadow) SetPositions(ctx context.Context, src Source, positions []Position) error {
	if len(positions) != int(src.Partitions) {
		return fmt.Errorf("%d positions for %d partitions", len(positions), src.Partitions)
	}
	return h.write(ctx, func(tx *sqlx.Tx) error {
		table := "applied_offset" + shadowSuffix
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+table); err != nil {
			return err
		}
		for partition, at := range positions {
			if !h.store.Shard().Has(int32(partition)) {
				continue
			}
			if err := insertPosition(ctx, tx, table, src, int32(partition), at); err != nil {
				return err
			}
		}
		return nil
	})
}

func (h *Shadow) write(ctx context.Context, steps func(*sqlx.Tx) error) error {
	backoff := retry.WithMaxRetries(writeRetries, retry.NewExponential(h.writeBackoff))
	err := retry.Do(ctx, backoff, func(ctx context.Context) error {
		tx, err := h.conn.BeginTxx(ctx, nil)
		if err != nil {
			return err
		}
		if err = steps(tx); err == nil {
			err = tx.Commit()
		} else if rollbackErr := tx.Rollback(); !errors.Is(rollbackErr, stdsql.ErrTxDone) {
			err = errors.Join(err, rollbackErr)
		}
		if isConflict(err) {
			return retry.RetryableError(err)
		}
		return err
	})
	return describe(err, "fill shadow tables in MySQL at %s", h)
}

// Swap replaces the current tables with the shadow tables, in one statement. With dropOld it drops the replaced tables;
// otherwise they keep their names plus OldSuffix, replacing those of an earlier Swap.
func (h *Shadow) Swap(ctx context.Context, dropOld bool) error {
	err := h.drop(ctx, OldSuffix)
	if err == nil {
		err = h.rename(ctx)
	}
	if err != nil || !dropOld {
		return describe(err, "put the new tables in place in MySQL at %s", h)
	}
	return describe(h.drop(ctx, OldSuffix), "the new tables are in place; drop the old ones in MySQL at %s", h)
}

func (h *Shadow) drop(ctx context.Context, suffix string) error {
	return h.exec(ctx, "DROP TABLE IF EXISTS "+strings.Join(shadowed, suffix+", ")+suffix)
}

func (h *Shadow) rename(ctx context.Context) error {
	var renames []string
	for _, table := range shadowed {
		renames = append(renames, table+" TO "+table+OldSuffix, table+shadowSuffix+" TO "+table)
	}
	if err := h.exec(ctx, fmt.Sprintf("SET SESSION lock_wait_timeout = %.0f", renameWait.Seconds())); err != nil {
		return err
	}
	backoff := retry.WithMaxRetries(renameRetries, retry.NewConstant(h.renamePause))
	err := retry.Do(ctx, backoff, func(ctx context.Context) error {
		// Not canceled by ctx, which would leave the outcome unknown: it takes little longer than renameWait.
		ctx = context.WithoutCancel(ctx)
		err := h.exec(ctx, "RENAME TABLE "+strings.Join(renames, ", "))
		if isConflict(err) {
			h.store.log.Info("the tables are busy; trying the RENAME again", "error", err)
			return retry.RetryableError(err)
		}
		// The answer may be lost. RENAME is atomic: all tables are renamed, or none.
		if err == nil || h.renamed(ctx) {
			return nil
		}
		return err
	})
	if hasNumber(err, errLockWaitTimeout) {
		return fmt.Errorf("%w: a transaction has kept one of the tables locked; "+
			"find it in information_schema.innodb_trx, end it, and run this again", err)
	}
	return err
}

// renamed reports, by another connection, whether the shadow tables are certainly in place: gone under their own names.
func (h *Shadow) renamed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	_, err := h.store.db.ExecContext(ctx, "SELECT post_id FROM "+shadowed[0]+shadowSuffix+" LIMIT 0")
	return hasNumber(err, errNoSuchTable)
}

// Close ends the connection and its lock, and drops unused shadow tables (after a lost connection, NewShadow does).
func (h *Shadow) Close() error {
	if h.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := h.drop(ctx, shadowSuffix); err != nil {
			h.store.log.Warn("shadow tables are left behind; the next `kudos rebuild` drops them",
				"suffix", shadowSuffix, "error", err)
		}
		// The end of a session releases it too, but the server may see that only after the next rebuild has begun.
		_ = h.conn.GetContext(ctx, new(stdsql.NullBool), "SELECT RELEASE_LOCK(?)", shadowLock)
		_ = h.conn.Close()
	}
	return h.store.Close()
}
