package sql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

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
