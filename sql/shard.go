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

// Shard is the place of a database among those that share the partitions: of Shards databases, the one with this Index
// has partition p of each topic if p modulo Shards is Index. The zero value is the only one.
type Shard struct{ Index, Shards int32 }

// Count is how many there are.
func (s Shard) Count() int32 { return max(1, s.Shards) }

// Has tells whether a partition's rows are in this database.
func (s Shard) Has(partition int32) bool { return partition%s.Count() == s.Index }

// String is "shard 1 of 3", from 0 as the partitions are.
func (s Shard) String() string { return fmt.Sprintf("shard %d of %d", s.Index, s.Count()) }

// Label names it in metrics.
func (s Shard) Label() string { return strconv.Itoa(int(s.Index)) }

// checkShard holds what the database says that it is against what the settings take it for. Whoever is about to find
// out where to go on asks this first, on the same connection: counts would be added in two places otherwise. The row is
// written once and never changes, so reading it takes no lock.
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

// checkShardOnce is checkShard until it was right, for those who only look: nothing is counted by what comes out, and
// the dashboard asks often.
func (s *Store) checkShardOnce(ctx context.Context) error {
	if s.isShard.Load() {
		return nil
	}
	err := checkShard(ctx, s.db, s.Shard())
	s.isShard.Store(err == nil)
	return err
}

// record has each database record which shard it is, if it has not before. First all are asked: where the list is
// wrong in one place, nothing is recorded anywhere.
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

// recordShard has a database record which shard it is, if nobody else has done so since it was asked.
func (s *Store) recordShard(ctx context.Context) error {
	shard := s.Shard()
	insert := "INSERT INTO kudos_shard (id, shard, shards) VALUES (1, ?, ?)"
	_, err := s.db.ExecContext(ctx, insert, shard.Index, shard.Count())
	if hasNumber(err, errDuplicateKey) { // another `kudos migrate` was first
		return checkShard(ctx, s.db, shard)
	}
	return err
}

// distinct refuses a database that is named twice, by two names of its server: a lock whose name nobody else knows is
// taken in each, and was free. The locks end with the connections, when s is closed.
func (s *Shards) distinct(ctx context.Context) error {
	lock := rand.Text()
	for _, store := range s.stores {
		conn, err := store.db.Connx(ctx)
		if err != nil {
			return describe(err, "ask MySQL at %s which database it is", store)
		}
		defer conn.Close() // not before all have been asked: another one must be another connection
		var free stdsql.NullBool
		if err := conn.GetContext(ctx, &free, "SELECT GET_LOCK(CONCAT(?, MD5(DATABASE())), 0)", lock); err != nil {
			return describe(err, "ask MySQL at %s which database it is", store)
		}
		if !free.Bool {
			return fmt.Errorf("MySQL at %s is a database that mysql.shards has named before, "+
				"by another name of its server: name each once", store)
		}
	}
	return nil
}

// checkUnrecorded is checkShard for a database that may have counted before there was a record: then it is the only
// one.
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
	return describe(err, "ask MySQL at %s which shard it is", s)
}
