package sql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"kudos/schema"
)

// Shards are the databases that share the partitions, usually each on a server of its own. With one, that has all. Each
// has positions of its own: nothing is a transaction over two of them, and one that is away concerns its own partitions.
type Shards struct {
	stores  []*Store
	timeout time.Duration // of a look at all of them
}

// Open makes a store on each server of the options. It does no I/O: the first call that needs a server connects.
func Open(o Options, log *slog.Logger) (*Shards, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("mysql options: %w", err)
	}
	var stores []*Store
	for _, one := range o.Each() {
		store, err := New(one, log)
		if err != nil {
			for _, open := range stores {
				err = errors.Join(err, open.Close())
			}
			return nil, err
		}
		stores = append(stores, store)
	}
	return NewShards(stores...), nil
}

// NewShards has stores in the order of their shards. It closes them.
func NewShards(stores ...*Store) *Shards {
	return &Shards{stores: stores, timeout: stores[0].options.ConnectTimeout}
}

// Of is the store that has a partition's rows.
func (s *Shards) Of(partition int32) *Store { return s.stores[int(partition)%len(s.stores)] }

// All are the stores in the order of their shards.
func (s *Shards) All() []*Store { return s.stores }

// Close ends the connections. Calls still running fail.
func (s *Shards) Close() error {
	var errs []error
	for _, store := range s.stores {
		errs = append(errs, store.Close())
	}
	return errors.Join(errs...)
}

// CheckShards asks each database which shard it is, and fails with *ShardError if one is another than the settings say:
// their list was changed. A server that does not answer at once, or has no tables yet, is passed over: it is asked again
// by whoever opens a partition there.
func (s *Shards) CheckShards(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	errs := make([]error, len(s.stores))
	var g errgroup.Group
	for i, store := range s.stores {
		g.Go(func() error {
			err := store.checkShardOnce(ctx)
			var other *ShardError
			if errors.As(err, &other) {
				errs[i] = describe(err, "ask MySQL at %s which shard it is", store)
			}
			return nil
		})
	}
	_ = g.Wait() // in errs
	return errors.Join(errs...)
}

// CheckSchema is Store.CheckSchema of all.
func (s *Shards) CheckSchema(ctx context.Context) error {
	var errs []error
	for _, store := range s.stores {
		errs = append(errs, store.CheckSchema(ctx))
	}
	return errors.Join(errs...)
}

// LikesByHour is Store.LikesByHour of all together. It fails if any of them does: a part of the sum would be wrong.
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
	sum := lists[0]
	for _, list := range lists[1:] {
		sum = addHours(sum, list)
	}
	return sum, nil
}

// addHours merges two lists that are in the order of hours.
func addHours(a, b []HourLikes) []HourLikes {
	sum := make([]HourLikes, 0, max(len(a), len(b)))
	for len(a) > 0 && len(b) > 0 {
		switch order := a[0].Hour.Compare(b[0].Hour); {
		case order < 0:
			sum, a = append(sum, a[0]), a[1:]
		case order > 0:
			sum, b = append(sum, b[0]), b[1:]
		default:
			sum = append(sum, HourLikes{Hour: a[0].Hour, Likes: a[0].Likes + b[0].Likes, Dislikes: a[0].Dislikes + b[0].Dislikes})
			a, b = a[1:], b[1:]
		}
	}
	return append(append(sum, a...), b...)
}

// Collectors are those of all.
func (s *Shards) Collectors() []prometheus.Collector {
	var all []prometheus.Collector
	for _, store := range s.stores {
		all = append(all, store.Collectors()...)
	}
	return all
}
