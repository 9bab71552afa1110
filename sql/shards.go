package sql

import (
	"context"
	"crypto/rand"
	stdsql "database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"kudos/schema"
)

// Shards are the databases that share the partitions, usually one per server; a single database has all partitions.
// Each has its own positions, so no transaction spans two of them, and an unavailable one affects only its partitions.
type Shards struct{ stores []*Store }

// Open creates a store for each database in the options. It does no I/O: the first call that needs a server connects.
func Open(o Options, log *slog.Logger) (*Shards, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("mysql options: %w", err)
	}
	s := &Shards{}
	for _, one := range o.Each() {
		store, err := New(one, log)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.stores = append(s.stores, store)
	}
	return s, nil
}

// NewShards combines stores, in shard order. Close closes them.
func NewShards(stores ...*Store) *Shards { return &Shards{stores} }

// Of is the store that has the rows of a partition.
func (s *Shards) Of(partition int32) *Store { return s.stores[int(partition)%len(s.stores)] }

// All returns the stores in shard order.
func (s *Shards) All() []*Store { return s.stores }

// Close closes the connections. Calls in flight fail.
func (s *Shards) Close() error { return s.each((*Store).Close) }

// CheckSchema runs Store.CheckSchema on all databases.
func (s *Shards) CheckSchema(ctx context.Context) error {
	return s.each(func(store *Store) error { return store.CheckSchema(ctx) })
}

func (s *Shards) each(do func(*Store) error) error {
	var errs []error
	for _, store := range s.stores {
		errs = append(errs, do(store))
	}
	return errors.Join(errs...)
}

// CheckShards fails with *ShardError if a database is not the shard that the settings say: their list was changed. It
// skips a server that does not answer in time or has no tables yet; opening a partition there checks again.
func (s *Shards) CheckShards(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.stores[0].options.ConnectTimeout)
	defer cancel()
	errs := make([]error, len(s.stores))
	var asked sync.WaitGroup
	for i, store := range s.stores {
		asked.Go(func() {
			err := store.checkShardOnce(ctx)
			if _, other := errors.AsType[*ShardError](err); other {
				errs[i] = describe(err, "check which shard MySQL at %s is", store)
			}
		})
	}
	asked.Wait()
	return errors.Join(errs...)
}

// LikesByHour is the sum of Store.LikesByHour over all databases. It fails if any fails: a partial sum would be wrong.
func (s *Shards) LikesByHour(ctx context.Context, region schema.Region, from, to time.Time) ([]HourLikes, error) {
	lists := make([][]HourLikes, len(s.stores))
	g, ctx := errgroup.WithContext(ctx)
	for i, store := range s.stores {
		g.Go(func() (err error) {
			lists[i], err = store.LikesByHour(ctx, region, from, to)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b HourLikes) int { return a.Hour.Compare(b.Hour) })
	sums := all[:0]
	for _, hour := range all {
		if n := len(sums); n > 0 && sums[n-1].Hour.Equal(hour.Hour) {
			sums[n-1].Likes += hour.Likes
			sums[n-1].Dislikes += hour.Dislikes
		} else {
			sums = append(sums, hour)
		}
	}
	return sums, nil
}

// Collectors returns the Prometheus collectors of all stores.
func (s *Shards) Collectors() []prometheus.Collector {
	var all []prometheus.Collector
	for _, store := range s.stores {
		all = append(all, store.collectors()...)
	}
	return all
}

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
