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
	// Layout is what is to be.
	Layout schema.Layout
	// DryRun changes nothing, and says how much would move.
	DryRun bool
	// TempDir is where a copy of the state table goes.
	TempDir string
	// Parallel is how many partitions are read, or locked, concurrently.
	Parallel int
	// MovePairs is how many reactions one transaction moves at most.
	MovePairs int
	// Progress is shown of what takes long.
	Progress progress.Printer
	// Say is told what is done, a line each; nil: nobody is.
	Say func(line string) error
}

// DefaultOptions want a layout.
func DefaultOptions() Options {
	return Options{TempDir: os.TempDir(), Parallel: 4, MovePairs: 10_000}
}

// Validate says what is wrong with the options, all of it.
func (o Options) Validate() error {
	var errs []error
	if o.Parallel < 1 {
		errs = append(errs, fmt.Errorf("parallel is %d; at least 1", o.Parallel))
	}
	if o.MovePairs < 1 || o.MovePairs > 100_000 {
		errs = append(errs, errors.New("move_pairs: between 1 and 100000"))
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

// repartition is one run.
type repartition struct {
	opts  Options
	kafka kafka.Options
	db    *sql.Shards
	log   *slog.Logger

	layout schema.Layout
	cl     *kgo.Client
	topics kafka.Topics
	t      *transaction // that moves
	result Result

	progress []*schema.Progress // of each partition that the state table had; nil: none yet
	layouts  uint32             // the number of the layout that is to be
}

// Run moves the reactions to where they live by the layout. The options must be valid. It may be stopped by ctx, or
// killed, at any point, and run again.
func Run(ctx context.Context, o Options, kafka kafka.Options, db *sql.Shards, log *slog.Logger) (*Result, error) {
	began := time.Now()
	r := &repartition{opts: o, kafka: kafka, db: db, log: log, layout: o.Layout}
	r.result.To, r.result.DryRun = o.Layout.Partitions, o.DryRun
	err := r.run(ctx)
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
	if err := r.addToMySQL(ctx); err != nil { // before anything is locked: MySQL answers, and has what it must
		return err
	}
	// Before anything is read: another run of this writes nothing from here on.
	if r.t, err = r.begin(ctx, schema.RepartitionTransactionalID); err != nil {
		return err
	}
	defer r.t.close()
	// The plan is made again: that one may have gone on until now.
	for _, step := range []func(context.Context) error{
		r.plan, r.lock, r.grow, r.addToMySQL, r.addProgress, r.move,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return r.say("%d partitions: %d posts with %d reactions were moved; folding goes on",
		r.layout.Partitions, r.result.Posts, r.result.Pairs)
}

// addToMySQL has the positions in MySQL be of as many partitions as like-updates has.
func (r *repartition) addToMySQL(ctx context.Context) error {
	t := r.topics.ByName[schema.TopicUpdates]
	return r.db.AddPartitions(ctx, sql.Source{Topic: schema.TopicUpdates, TopicID: t.ID, Partitions: t.Partitions})
}

// move moves all that lives in other partitions by the layout, and unlocks.
func (r *repartition) move(ctx context.Context) (err error) {
	tables, err := r.openTables(ctx, r.layout.Partitions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tables.close()) }()
	phase := r.opts.Progress.Begin("moving", "reactions", 0)
	defer phase.End()
	m, err := newMover(r, tables, phase)
	if err != nil {
		return err
	}
	for p := range r.layout.Partitions {
		if err := m.moveFrom(ctx, p); err != nil {
			return err
		}
	}
	return m.unlock(ctx)
}

// count says how much would move. It reads what is committed at the moment.
func (r *repartition) count(ctx context.Context) (err error) {
	tables, err := r.openTables(ctx, r.topics.ByName[schema.TopicState].Partitions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tables.close()) }()
	for p := range tables.list {
		last := uint64(0)
		err := tables.each(int32(p), func(post, user uint64, _ []byte) error {
			if r.layout.Home(post, user) == int32(p) {
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

// each does something for partitions, a few at a time.
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
