package ranker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"kudos/ranker/window"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// Ranker is the role: its groups in one process.
type Ranker struct {
	db     *sql.Shards // nil: rankings are in Kafka only
	stores *store.Set
	groups []*stream.Processor
}

// New makes a ranker. It starts nothing. Without a database rankings are in Kafka only.
func New(opts Options, kafka kafka.Options, db *sql.Shards, log *slog.Logger, reg prometheus.Registerer) (*Ranker, error) {
	if err := errors.Join(opts.Validate(), kafka.Validate()); err != nil {
		return nil, err
	}
	r := &Ranker{db: db, stores: store.NewSet(opts.StateDir, opts.CacheBytes, log)}
	r.stores.FitMemtables(r.stores.MemtableBytes, opts.CacheBytes)
	workers := NewWorkers(opts, kafka, r.stores, log, reg)
	common := stream.ProcessorOptions{
		LossRemedy:      makeAnew,
		Kafka:           kafka,
		MaxBatch:        opts.MaxBatch,
		TickInterval:    time.Second,
		ParkInterval:    opts.ParkInterval,
		SessionTimeout:  opts.SessionTimeout,
		ShutdownTimeout: opts.ShutdownTimeout,
	}
	add := func(group, input string, table bool, worker func(stream.Assignment) stream.Worker) {
		o := common
		o.Group, o.Input = group, input
		if o.Table = table; table {
			o.Stores = r.stores
		}
		o.CommitPositions = !table
		r.groups = append(r.groups, stream.NewProcessor(o, worker, log))
	}
	add(schema.GroupTrendingLocal, schema.TopicUpdates, true, workers.Local)
	add(schema.GroupTrending, schema.TopicTrendingLocal, true, workers.Trending)
	if db != nil {
		m := newMySQLMetrics(reg)
		common.MaxBatch, common.LossRemedy = mysqlMaxBatch, ""
		add(schema.GroupTrendingMySQL, schema.TopicTrending, false, func(a stream.Assignment) stream.Worker {
			return newMySQLWriter(a, kafka, db.Of(a.Partition), m, log)
		})
	}
	reg.MustRegister(stream.NewCollector(r.groups...), store.NewCollector("ranker", r.stores))
	return r, nil
}

// Run works until ctx ends, and then finishes the batches in hand. Over the servers'
// troubles it does not end, but over databases that are not those of the settings.
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

// Ready is nil when every assigned partition of all groups is being worked on.
func (r *Ranker) Ready() error {
	var errs []error
	for _, p := range r.groups {
		errs = append(errs, p.Ready())
	}
	return errors.Join(errs...)
}

// Detail tells of each assigned partition.
func (r *Ranker) Detail() any { return stream.Detail(r.groups...) }

// Lag returns how many records all groups have before them.
func (r *Ranker) Lag() int64 {
	var lag int64
	for _, p := range r.groups {
		statuses, _ := p.Status()
		for _, s := range statuses {
			lag += s.Lag
		}
	}
	return lag
}

// Workers makes the workers of the groups with state tables, one for each assigned
// partition.
type Workers struct {
	opts    Options
	config  *window.Config
	kafka   kafka.Clients
	stores  *store.Set
	log     *slog.Logger
	metrics *metrics
	now     func() time.Time
}

// NewWorkers does no I/O. stores stay the caller's.
func NewWorkers(opts Options, kafka kafka.Clients, stores *store.Set, log *slog.Logger, reg prometheus.Registerer) *Workers {
	config := opts.Config()
	return &Workers{opts: opts, config: config, kafka: kafka, stores: stores, log: log, metrics: newMetrics(reg, config), now: time.Now}
}

func (w *Workers) table(group, input, output string, a stream.Assignment) table {
	return table{
		group: group, input: input, output: output, partition: a.Partition, member: a.Member,
		opts: &w.opts, kafka: w.kafka, stores: w.stores, log: w.log.With("group", group),
	}
}

// Local makes a worker of trending-local.
func (w *Workers) Local(a stream.Assignment) stream.Worker {
	t := w.table(schema.GroupTrendingLocal, schema.TopicUpdates, schema.TopicTrendingLocal, a)
	t.grows = true
	return &local{
		table:  t,
		config: w.config, metrics: w.metrics, now: w.now,
	}
}

// Trending makes a worker of trending.
func (w *Workers) Trending(a stream.Assignment) stream.Worker {
	return &trending{
		table:  w.table(schema.GroupTrending, schema.TopicTrendingLocal, schema.TopicTrending, a),
		config: w.config, metrics: w.metrics, now: w.now,
	}
}

// Config is what rankings depend on, besides the log.
func (o Options) Config() *window.Config {
	c := &window.Config{Lateness: int64(o.AllowedLateness / time.Minute), TopN: o.TopN, MinLikes: o.MinLikes}
	halfLife := int64(0)
	if o.Score == scoreDecay {
		halfLife = int64(o.HalfLife / time.Minute)
	}
	for _, size := range o.Windows {
		c.Windows = append(c.Windows, window.New(int64(size/time.Minute), halfLife))
	}
	c.Windows = append(c.Windows, window.Day())
	for i, text := range o.Regions {
		if i == 0 {
			c.Regions = map[schema.Region]bool{}
		}
		region, _ := schema.ParseRegion(text)
		c.Regions[region] = true
	}
	return c
}
