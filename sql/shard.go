package sql

import (
	"context"
	"crypto/rand"
	stdsql "database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/jmoiron/sqlx"
)

// Shard identifies one of the databases that share the partitions: it has partition p of every topic if p % Shards ==
// Index. The zero value stands for a single database.
type Shard struct{ Index, Shards int32 }

// Count is the number of shards, at least 1.
func (s Shard) Count() int32 { return max(1, s.Shards) }

// Has reports whether the database has the rows of a partition.
func (s Shard) Has(partition int32) bool { return partition%s.Count() == s.Index }

// String is "shard 1 of 3"; shards count from 0, like partitions.
func (s Shard) String() string { return fmt.Sprintf("shard %d of %d", s.Index, s.Count()) }

// Label is the metric label value.
func (s Shard) Label() string { return strconv.Itoa(int(s.Index)) }

// checkShard compares the shard recorded in the database with the one in the settings, before the caller reads a
// position on the same connection: otherwise two databases could count. The row never changes, so no lock is needed.
func checkShard(ctx context.Context, q sqlx.QueryerContext, given Shard) error {
	var row struct{ Shard, Shards int32 }
	err := sqlx.GetContext(ctx, q, &row, "SELECT shard, shards FROM kudos_shard WHERE id = 1")
	switch {
	case errors.Is(err, stdsql.ErrNoRows):
		return ErrShardMissing
	case err != nil:
		return err
	case row.Shard != given.Index || max(1, row.Shards) != given.Count():
		return &ShardError{Stored: Shard{row.Shard, row.Shards}, Given: given}
	}
	return nil
}

// checkShardOnce runs checkShard until it succeeds once, for reads that affect no counts; the dashboard calls it often.
func (s *Store) checkShardOnce(ctx context.Context) error {
	if s.isShard.Load() {
		return nil
	}
	err := checkShard(ctx, s.db, s.Shard())
	s.isShard.Store(err == nil)
	return err
}

// record makes each database record its shard, unless it has. It checks all first: a wrong list records nothing.
func (s *Shards) record(ctx context.Context, log *slog.Logger) error {
	if err := s.distinct(ctx); err != nil {
		return err
	}
	errs := make([]error, len(s.stores))
	var fresh []*Store
	for i, store := range s.stores {
		errs[i] = store.checkUnrecorded(ctx)
		if errors.Is(errs[i], ErrShardMissing) {
			fresh, errs[i] = append(fresh, store), nil
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, store := range fresh {
		if err := store.recordShard(ctx); err != nil {
			return describe(err, "record which shard MySQL at %s is", store)
		}
		log.Info("recorded which shard this is", "server", store.Server(),
			"shard", store.Shard().Index, "shards", store.Shard().Count())
	}
	return nil
}

// recordShard inserts the record, or checks the one that another process has inserted meanwhile.
func (s *Store) recordShard(ctx context.Context) error {
	shard := s.Shard()
	insert := "INSERT INTO kudos_shard (id, shard, shards) VALUES (1, ?, ?)"
	_, err := s.db.ExecContext(ctx, insert, shard.Index, shard.Count())
	if hasNumber(err, errDuplicateKey) { // by another `kudos migrate`
		return checkShard(ctx, s.db, shard)
	}
	return err
}

// distinct rejects a database listed twice, under two names of its server. It takes a lock with a random name in each
// database; the lock is held if the database was listed before. The locks end with the connections, when s is closed.
func (s *Shards) distinct(ctx context.Context) error {
	lock := rand.Text()
	for _, store := range s.stores {
		conn, err := store.db.Connx(ctx)
		if err != nil {
			return describe(err, "check which database MySQL at %s is", store)
		}
		defer conn.Close() // only after the loop: each lock needs its own connection
		var free stdsql.NullBool
		if err := conn.GetContext(ctx, &free, "SELECT GET_LOCK(CONCAT(?, MD5(DATABASE())), 0)", lock); err != nil {
			return describe(err, "check which database MySQL at %s is", store)
		}
		if !free.Bool {
			return fmt.Errorf("MySQL at %s is a database that mysql.shards already lists, "+
				"under another name of its server: list each once", store)
		}
	}
	return nil
}

// checkUnrecorded is checkShard for a database that may be older than the record. If such a database has counts, it was
// the only one, and cannot become one of several shards.
func (s *Store) checkUnrecorded(ctx context.Context) error {
	err := checkShard(ctx, s.db, s.Shard())
	if errors.Is(err, ErrShardMissing) && s.Shard().Count() > 1 {
		var used bool
		usedErr := s.db.GetContext(ctx, &used, "SELECT EXISTS (SELECT 1 FROM like_count)"+
			" OR EXISTS (SELECT 1 FROM like_hourly)"+
			" OR EXISTS (SELECT 1 FROM applied_offset) OR EXISTS (SELECT 1 FROM trending_position)")
		if usedErr != nil {
			err = usedErr
		} else if used {
			err = &ShardError{Given: s.Shard()}
		}
	}
	return describe(err, "check which shard MySQL at %s is", s)
}
