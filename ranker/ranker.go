package ranker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// Ranker runs the groups of the ranker role in one process.
type Ranker struct {
	db     *sql.Shards // nil if rankings are in Kafka only
	stores *store.Set
	groups []*stream.Processor
}

// New returns a ranker, which Run starts. If db is nil, rankings are in Kafka only.
func New(
	opts Options, kafka kafka.Options, db *sql.Shards, log *slog.Logger, reg prometheus.Registerer,
) (*Ranker, error) {
	if err := errors.Join(opts.Validate(), kafka.Validate()); err != nil {
		return nil, err
	}
	r := &Ranker{db: db, stores: store.NewSet(opts.StateDir, opts.CacheBytes, log)}
	r.stores.FitMemtables(r.stores.MemtableBytes, opts.CacheBytes)
	config := opts.config()
	t := table{opts: &opts, config: config, kafka: kafka, stores: r.stores, metrics: newMetrics(reg, config), log: log}
	common := stream.ProcessorOptions{
		Kafka:           kafka,
		TickInterval:    time.Second,
		ParkInterval:    opts.ParkInterval,
		SessionTimeout:  opts.SessionTimeout,
		ShutdownTimeout: opts.ShutdownTimeout,
	}
	add := func(o stream.ProcessorOptions, group, input string, worker func(stream.Assignment) stream.Worker) {
		o.Group, o.Input = group, input
		r.groups = append(r.groups, stream.NewProcessor(o, worker, log))
	}
	withTable := common
	withTable.MaxBatch, withTable.LossAction = opts.MaxBatch, actionReset
	withTable.Table = true
	add(withTable, schema.GroupTrendingLocal, schema.TopicUpdates, func(a stream.Assignment) stream.Worker {
		t := t.of(a, schema.GroupTrendingLocal, schema.TopicTrendingLocal)
		t.grows = true
		return &local{table: t}
	})
	add(withTable, schema.GroupTrending, schema.TopicTrendingLocal, func(a stream.Assignment) stream.Worker {
		return &trending{table: t.of(a, schema.GroupTrending, schema.TopicTrending)}
	})
	if db != nil {
		m := newMySQLMetrics(reg)
		toMySQL := common
		toMySQL.MaxBatch, toMySQL.CommitPositions = mysqlMaxBatch, true
		add(toMySQL, schema.GroupTrendingMySQL, schema.TopicTrending, func(a stream.Assignment) stream.Worker {
			return newMySQLWriter(a, kafka, db.Of(a.Partition), m, log)
		})
	}
	reg.MustRegister(stream.NewCollector(r.groups...), store.NewCollector("ranker", r.stores))
	return r, nil
}

// Run runs until ctx ends, then finishes batches in flight. Only a database of another shard ends it early.
func (r *Ranker) Run(ctx context.Context) error {
	defer r.stores.Close()
	g, ctx := errgroup.WithContext(ctx)
	if r.db != nil {
		g.Go(func() error { return r.db.CheckShards(ctx) })
	}
	for _, p := range r.groups {
		g.Go(func() error { return p.Run(ctx) })
	}
	return g.Wait()
}

// Ready returns nil if every assigned partition of all groups is running.
func (r *Ranker) Ready() error {
	var errs []error
	for _, p := range r.groups {
		errs = append(errs, p.Ready())
	}
	return errors.Join(errs...)
}

// Detail returns the status of each assigned partition.
func (r *Ranker) Detail() any { return stream.Detail(r.groups...) }
