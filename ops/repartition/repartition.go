package repartition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/ops/audit"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// Options of a repartition.
type Options struct {
	// Layout is what is to be.
	Layout schema.Layout
	// DryRun changes nothing, and says how much would move.
	DryRun bool
	// TempDir is where a copy of the state table goes.
	TempDir string
	// CacheBytes is the memory of the copy's block cache.
	CacheBytes int64
	// Parallel is how many partitions are read, or locked, at a time.
	Parallel int
	// MovePairs is how many reactions one transaction moves at most.
	MovePairs int
	// TransactionTimeout is how long Kafka leaves a transaction of a run that died open.
	TransactionTimeout time.Duration
	// Progress is shown of what takes long.
	Progress audit.Progress
	// Say is told what is done, a line each; nil: nobody is.
	Say func(line string) error
}

// DefaultOptions want a layout.
func DefaultOptions() Options {
	return Options{
		TempDir: os.TempDir(), CacheBytes: 64 << 20, Parallel: 4, MovePairs: 10_000, TransactionTimeout: 30 * time.Second,
		Progress: audit.Progress{Name: "repartition"},
	}
}

// Validate says what is wrong with the options, all of it.
func (o Options) Validate() error {
	var errs []error
	if o.Layout.Partitions < 1 {
		errs = append(errs, fmt.Errorf("topics.partitions is %d; at least 1", o.Layout.Partitions))
	}
	if o.Parallel < 1 {
		errs = append(errs, fmt.Errorf("parallel is %d; at least 1", o.Parallel))
	}
	if o.CacheBytes < 1<<20 {
		errs = append(errs, errors.New("cache_bytes: at least 1 MiB"))
	}
	if o.MovePairs < 1 || o.MovePairs > 100_000 {
		errs = append(errs, errors.New("move_pairs: between 1 and 100000"))
	}
	if o.TransactionTimeout < time.Second {
		errs = append(errs, errors.New("transaction_timeout: at least 1s"))
	}
	return errors.Join(errs...)
}

// Result is what was done, or would be.
type Result struct {
	// From and To are the partitions before and after. Of a run that goes on where another one was stopped, From is
	// what that one came to.
	From int32 `json:"from"`
	To   int32 `json:"to"`
	// Posts and Pairs were moved, or would be: a pair is a user's reaction to a post, or that there is none any more. A
	// post whose users live in several partitions counts in each.
	Posts int64 `json:"posts"`
	Pairs int64 `json:"pairs"`
	// Mended posts had counts in the state table that were not those of their pairs.
	Mended       int64   `json:"mended"`
	Transactions int64   `json:"transactions"`
	DryRun       bool    `json:"dry_run"`
	Seconds      float64 `json:"seconds"`
}

// Repartition is one run.
type Repartition struct {
	opts  Options
	kafka kafka.Options
	db    *sql.Shards
	log   *slog.Logger

	layout schema.Layout
	cl     *kgo.Client
	topics kafka.Topics
	result Result
}

// New makes a repartition; it does nothing yet.
func New(o Options, kafka kafka.Options, db *sql.Shards, log *slog.Logger) (*Repartition, error) {
	if err := errors.Join(o.Validate(), kafka.Validate()); err != nil {
		return nil, err
	}
	return &Repartition{opts: o, kafka: kafka, db: db, log: log, layout: o.Layout}, nil
}

// Run does it, once. It may be stopped by ctx, or killed, at any point, and run again.
func (r *Repartition) Run(ctx context.Context) (*Result, error) {
	began := time.Now()
	err := r.run(ctx)
	r.result.Seconds, r.result.DryRun = time.Since(began).Seconds(), r.opts.DryRun
	return &r.result, err
}

func (r *Repartition) run(ctx context.Context) (err error) {
	if r.cl, err = r.kafka.NewClient(r.log); err != nil {
		return err
	}
	defer r.cl.Close()
	plan, err := r.plan(ctx)
	if err != nil {
		return err
	}
	r.result.From, r.result.To = plan.from, r.layout.Partitions
	if r.opts.DryRun {
		return r.count(ctx)
	}
	if err := r.addToMySQL(ctx); err != nil { // it answers, and has what it must: before anything is locked
		return err
	}
	// Before anything is read: another run of this writes nothing from here on.
	m, err := newMover(ctx, r)
	if err != nil {
		return err
	}
	defer m.close()
	if plan, err = r.plan(ctx); err != nil { // that one may have gone on until now
		return err
	}
	if err := r.lock(ctx, plan); err != nil {
		return err
	}
	if err := r.grow(ctx); err != nil {
		return err
	}
	if err := r.addToMySQL(ctx); err != nil {
		return err
	}
	if err := r.addProgress(ctx, plan); err != nil {
		return err
	}
	if err := r.move(ctx, m); err != nil {
		return err
	}
	return r.say("%d partitions: %d posts with %d reactions were moved; folding goes on", r.layout.Partitions, r.result.Posts, r.result.Pairs)
}

// addToMySQL has the positions in MySQL be of as many partitions as like-updates has.
func (r *Repartition) addToMySQL(ctx context.Context) error {
	t := r.topics.ByName[schema.TopicUpdates]
	return r.db.AddPartitions(ctx, sql.Source{Topic: schema.TopicUpdates, TopicID: t.ID, Partitions: t.Partitions})
}

// move moves all that is not at home, and unlocks.
func (r *Repartition) move(ctx context.Context, m *mover) (err error) {
	tables, err := r.openTables(ctx, r.layout.Partitions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tables.close()) }()
	if err := m.take(tables); err != nil {
		return err
	}
	phase := r.opts.Progress.Begin("moving", "reactions", 0)
	defer phase.End()
	for p := range r.layout.Partitions {
		if err := m.moveFrom(ctx, p, phase); err != nil {
			return err
		}
	}
	return m.unlock(ctx)
}

// count says how much is not at home. It reads what is committed at the moment.
func (r *Repartition) count(ctx context.Context) (err error) {
	tables, err := r.openTables(ctx, r.topics.ByName[schema.TopicState].Partitions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tables.close()) }()
	for p := range tables.list {
		last := uint64(0)
		err := tables.eachAway(int32(p), r.layout, func(post, _ uint64, _ int32, _ []byte) error {
			if r.result.Pairs++; last != post {
				r.result.Posts, last = r.result.Posts+1, post
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return r.say("dry run: nothing was changed; %d posts with %d reactions would move", r.result.Posts, r.result.Pairs)
}

// each does something for partitions, a few at a time.
func (r *Repartition) each(ctx context.Context, partitions int32, do func(context.Context, int32) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.opts.Parallel)
	for p := range partitions {
		g.Go(func() error { return do(ctx, p) })
	}
	return g.Wait()
}

func (r *Repartition) say(format string, args ...any) error {
	if r.opts.Say == nil {
		return nil
	}
	return r.opts.Say(fmt.Sprintf(format, args...))
}
