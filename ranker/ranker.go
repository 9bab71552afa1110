package ranker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/ranker/window"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// This file starts the three groups, with their metrics, and resets their state.

// Ranker runs the groups of the ranker role in one process.
type Ranker struct {
	db     *sql.Shards // nil if rankings are in Kafka only
	stores *store.Set
	groups []*stream.Processor
}

// New returns a ranker, which Run starts. If db is nil, rankings are in Kafka only.
func New(opts Options, kafka kafka.Options, db *sql.Shards, log *slog.Logger, reg prometheus.Registerer,
) (*Ranker, error) {
	if err := errors.Join(opts.Validate(), kafka.Validate()); err != nil {
		return nil, err
	}
	r := &Ranker{db: db, stores: store.NewSet(opts.StateDir, opts.CacheBytes, log)}
	r.stores.FitMemtables(r.stores.MemtableBytes, opts.CacheBytes)
	config := opts.config()
	t := table{opts: &opts, config: config, kafka: kafka, stores: r.stores, metrics: newMetrics(reg, config), log: log}
	common := stream.ProcessorOptions{
		Kafka: kafka, ProcessID: stream.ProcessID(opts.StateDir), TickInterval: time.Second,
		ParkInterval: opts.ParkInterval, SessionTimeout: opts.SessionTimeout, ShutdownTimeout: opts.ShutdownTimeout,
	}
	add := func(o stream.ProcessorOptions, group, input string, worker func(stream.Assignment) stream.Worker) {
		if o.Group, o.Input = group, input; o.Table {
			o.Check = checkPartitions(input, group+"-table")
		}
		p := stream.NewProcessor(o, worker, log)
		reg.MustRegister(stream.NewCollector(p))
		r.groups = append(r.groups, p)
	}
	withTable := common
	withTable.MaxBatch, withTable.LossAction, withTable.Table = opts.MaxBatch, actionReset, true
	add(withTable, schema.GroupTrendingLocal, schema.TopicUpdates, func(a stream.Assignment) stream.Worker {
		t := t.of(a, schema.GroupTrendingLocal, schema.TopicTrendingLocal)
		t.grows = true
		return &local{table: t}
	})
	add(withTable, schema.GroupTrending, schema.TopicTrendingLocal, func(a stream.Assignment) stream.Worker {
		return &trending{table: t.of(a, schema.GroupTrending, schema.TopicTrending)}
	})
	if len(opts.Milestones) > 0 {
		add(withTable, schema.GroupMilestones, schema.TopicMilestonesLocal, func(a stream.Assignment) stream.Worker {
			return &milestones{table: t.of(a, schema.GroupMilestones, schema.TopicMilestones)}
		})
	}
	if db != nil {
		m := newMySQLMetrics(reg)
		toMySQL := common
		toMySQL.MaxBatch, toMySQL.CommitPositions = mysqlMaxBatch, true
		add(toMySQL, schema.GroupTrendingMySQL, schema.TopicTrending, func(a stream.Assignment) stream.Worker {
			return newMySQLWriter(a, kafka, db.Of(a.Partition), m, log)
		})
	}
	reg.MustRegister(store.NewCollector("ranker", r.stores))
	return r, nil
}

// checkPartitions compares input and state table: goka would fail the group without an action.
func checkPartitions(input, state string) func(context.Context, *kgo.Client) error {
	return func(ctx context.Context, cl *kgo.Client) error {
		topics, err := kafka.LookUpTopics(ctx, cl, input, state)
		if err != nil {
			return err
		}
		n, of, action := topics.ByName[state].Partitions, topics.ByName[input].Partitions, actionReset
		if !schema.KeepsPartitions(state) {
			action = "if `kudos topics repartition` was stopped, run it again; otherwise " + actionReset
		}
		if n != of {
			return stream.Park(stream.CauseTopics, action, "topic %s has %d partitions, %s has %d", state, n, input, of)
		}
		return nil
	}
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

// metrics of the groups with a table. Counters count committed work only.
type metrics struct {
	updates  prometheus.Counter
	late     *prometheus.CounterVec // by window
	rankings prometheus.Counter
	posts    *prometheus.GaugeVec // by partition
	buckets  *prometheus.GaugeVec // by partition

	milestones prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, config *window.Config) *metrics {
	f := promauto.With(reg)
	gauge := func(name, help string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Namespace: "kudos", Name: name, Help: help}, []string{"partition"})
	}
	m := &metrics{
		updates: f.NewCounter(named("ranker_updates_total", "Records of like-updates that were counted in windows.")),
		late: f.NewCounterVec(named("ranker_late_likes_total",
			"Likes that arrived after their time had left the window: its rankings exclude them."), []string{"window"}),
		rankings:   f.NewCounter(named("rankings_published_total", "Rankings written to trending.")),
		milestones: f.NewCounter(named("milestones_published_total", "Milestones written to milestones.")),
		posts: gauge("ranker_active_posts",
			"Posts that have likes in any window, counted once per region and once in global."),
		buckets: gauge("ranker_buckets", "Time buckets with likes of those posts."),
	}
	for _, w := range config.Windows {
		m.late.WithLabelValues(w.Name)
	}
	return m
}

// mysqlMetrics count what trending-mysql has committed.
type mysqlMetrics struct{ rankings, transactions prometheus.Counter }

func newMySQLMetrics(reg prometheus.Registerer) *mysqlMetrics {
	f := promauto.With(reg)
	return &mysqlMetrics{
		rankings: f.NewCounter(named("ranker_mysql_rankings_total",
			"Rankings written to MySQL, without those that a newer one had already replaced.")),
		transactions: f.NewCounter(named("ranker_mysql_transactions_total",
			"MySQL transactions committed by trending-mysql.")),
	}
}

func named(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Namespace: "kudos", Name: name, Help: help}
}

// Reset deletes the ranker's internal topics and groups, so that after `kudos topics apply` the next ranker starts over
// from what like-updates holds. Published rankings and exclusions remain. It fails while a ranker is running.
func Reset(ctx context.Context, cluster kafka.Options, log *slog.Logger) error {
	cl, err := cluster.NewClient(log)
	if err != nil {
		return err
	}
	defer cl.Close()
	groups := []string{schema.GroupTrendingLocal, schema.GroupTrending}
	if err := kafka.RefuseMembers(ctx, cl, "rankers", groups...); err != nil {
		return err
	}
	adm := kadm.NewClient(cl)
	topics := []string{schema.TopicTrendingLocal, schema.TopicTrendingLocalTable, schema.TopicTrendingTable}
	for _, topic := range topics {
		if _, err := adm.DeleteTopic(ctx, topic); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return fmt.Errorf("deleting topic %s: %w", topic, err)
		}
	}
	// If their offsets remained, the new tables would look rewound.
	for _, group := range groups {
		if _, err := adm.DeleteGroup(ctx, group); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return fmt.Errorf("deleting group %s: %w", group, err)
		}
	}
	for _, topic := range topics {
		if err := waitGone(ctx, adm, topic); err != nil {
			return err
		}
	}
	return nil
}

// waitGone waits until no broker knows the topic anymore: until then it cannot be created again.
func waitGone(ctx context.Context, adm *kadm.Client, topic string) error {
	for {
		topics, err := adm.ListTopics(ctx, topic)
		if err == nil && errors.Is(topics[topic].Err, kerr.UnknownTopicOrPartition) {
			return nil
		}
		if !kafka.Sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("waiting for topic %s to be deleted: %w", topic, ctx.Err())
		}
	}
}
