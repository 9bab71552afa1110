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

	"kudos/ops/progress"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// Options of a repartition.
type Options struct {
	Layout    schema.Layout           // the new one
	DryRun    bool                    // change nothing, and report how much would move
	TempDir   string                  // the directory for a temporary copy of the state table
	Parallel  int                     // how many partitions are read or locked concurrently
	MovePairs int                     // bounds the reactions that one transaction moves
	Progress  progress.Printer        // of long steps
	Say       func(line string) error // receives each step taken, as one line; nil discards them
}

// DefaultOptions lack a layout.
func DefaultOptions() Options { return Options{TempDir: os.TempDir(), Parallel: 4, MovePairs: 10_000} }

// Validate reports every invalid option.
func (o Options) Validate() (err error) {
	if o.Parallel < 1 {
		err = errors.Join(err, fmt.Errorf("parallel is %d; it must be at least 1", o.Parallel))
	}
	if o.MovePairs < 1 || o.MovePairs > 100_000 {
		err = errors.Join(err, errors.New("move_pairs must be between 1 and 100000"))
	}
	return err
}

// Result is what was done, or in a dry run would be.
type Result struct {
	// From and To are the partitions before and after; equal if the run resumes one that had locked all partitions.
	From int32 `json:"from"`
	To   int32 `json:"to"`
	// Posts and Pairs are the numbers moved. A pair is the state of one user on one post, possibly "no reaction". A
	// post counts once for each partition that its users leave.
	Posts        int64   `json:"posts"`
	Pairs        int64   `json:"pairs"`
	Repaired     int64   `json:"repaired"` // posts with stored counts that were not the sum of their pairs
	Transactions int64   `json:"transactions"`
	DryRun       bool    `json:"dry_run"`
	Seconds      float64 `json:"seconds"`
}

type repartition struct {
	opts  Options
	kafka kafka.Options
	db    *sql.Shards
	log   *slog.Logger

	layout schema.Layout
	cl     *kgo.Client
	topics kafka.Topics
	t      *transaction // for the moves
	result Result

	progress []*schema.Progress // progress record of each partition of the state table; nil if there is none yet
	layouts  uint32             // the number of the new layout
}

// Run migrates the reactions to the layout. The options must be valid. If stopped by ctx or killed, it may run again.
func Run(ctx context.Context, o Options, kafka kafka.Options, db *sql.Shards, log *slog.Logger) (*Result, error) {
	began := time.Now()
	r := &repartition{opts: o, kafka: kafka, db: db, log: log, layout: o.Layout}
	r.result.To, r.result.DryRun = o.Layout.Partitions, o.DryRun
	err := r.run(ctx)
	if errors.Is(err, errDone) {
		err = r.say("nothing to do: there are already %d partitions%s; set topics.partitions to the number that "+
			"you want", o.Layout.Partitions, buckets(o.Layout.UserBuckets()))
	}
	r.result.Seconds = time.Since(began).Seconds()
	return &r.result, err
}

func (r *repartition) run(ctx context.Context) (err error) {
	if r.cl, err = r.kafka.NewClient(r.log); err != nil {
		return err
	}
	defer r.cl.Close()
	if err := r.plan(ctx); err != nil {
		return err
	}
	if r.opts.DryRun {
		return r.count(ctx)
	}
	if err := r.addToMySQL(ctx); err != nil { // before locking anything, to check that MySQL answers and is set up
		return err
	}
	// Fence before reading anything: an earlier run cannot write anything from here on.
	if r.t, err = r.begin(ctx, schema.RepartitionTransactionalID); err != nil {
		return err
	}
	defer r.t.cl.Close()
	// Plan again, because an earlier run may have continued until it was fenced.
	steps := []func(context.Context) error{r.plan, r.lock, r.grow, r.addToMySQL, r.addProgress, r.move}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return r.say("%d partitions: %d posts with %d reactions were moved; folding resumes",
		r.layout.Partitions, r.result.Posts, r.result.Pairs)
}

// addToMySQL adds the new partitions of like-updates to the positions in MySQL.
func (r *repartition) addToMySQL(ctx context.Context) error {
	t := r.topics.ByName[schema.TopicUpdates]
	return r.db.AddPartitions(ctx, sql.Source{Topic: schema.TopicUpdates, TopicID: t.ID, Partitions: t.Partitions})
}

// move moves all reactions that another partition owns by the new layout, and unlocks.
func (r *repartition) move(ctx context.Context) (err error) {
	tables, err := r.openTables(ctx, r.layout.Partitions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tables.close()) }()
	phase := r.opts.Progress.Begin("moving", "reactions", 0)
	defer phase.End()
	m, err := newMover(ctx, r, tables, phase)
	if err != nil {
		return err
	}
	if err := m.copyVoided(ctx); err != nil {
		return err
	}
	for p := range r.layout.Partitions {
		if err := m.moveFrom(ctx, p); err != nil {
			return err
		}
	}
	return m.unlock(ctx)
}

// count reports how much would move, by what is committed now.
func (r *repartition) count(ctx context.Context) (err error) {
	tables, err := r.openTables(ctx, r.topics.ByName[schema.TopicState].Partitions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tables.close()) }()
	for p := range tables.list {
		last := uint64(0)
		err := tables.each(int32(p), func(post, user uint64, _ []byte) error {
			if r.layout.PartitionOf(post, user) == int32(p) {
				return nil
			}
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

func (r *repartition) each(ctx context.Context, partitions int32, do func(context.Context, int32) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.opts.Parallel)
	for p := range partitions {
		g.Go(func() error { return do(ctx, p) })
	}
	return g.Wait()
}

func (r *repartition) say(format string, args ...any) error {
	if r.opts.Say == nil {
		return nil
	}
	return r.opts.Say(fmt.Sprintf(format, args...))
}
