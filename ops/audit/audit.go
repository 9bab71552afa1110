package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// Options of a comparison.
type Options struct {
	// Deep works the counts out anew from the state table, instead of taking those
	// that the updates carry; and like_hourly with them.
	Deep bool
	// Limit is how many rows of each kind the report shows.
	Limit int
	// TempDir is where temporary files go, some 40 bytes a post; in a deep comparison
	// also the state of as many partitions as are read at a time.
	TempDir string
	// Parallel is how many partitions are read at a time.
	Parallel int
	// CacheBytes is the memory of the temporary files' block cache.
	CacheBytes int64
	Progress   Progress
}

// DefaultOptions suit a machine with a few cores.
func DefaultOptions() Options {
	return Options{Limit: 20, TempDir: os.TempDir(), Parallel: 4, CacheBytes: 64 << 20, Progress: Progress{Name: "audit"}}
}

// Validate says what is wrong with the options, all of it.
func (o Options) Validate() error {
	var errs []error
	if o.Limit < 0 {
		errs = append(errs, fmt.Errorf("limit is %d; it must not be negative", o.Limit))
	}
	if o.Parallel < 1 {
		errs = append(errs, fmt.Errorf("parallel is %d; at least 1", o.Parallel))
	}
	if o.CacheBytes < 1<<20 {
		errs = append(errs, errors.New("cache_bytes: at least 1 MiB"))
	}
	return errors.Join(errs...)
}

// Run compares MySQL with the stream and reports, without stopping or changing anything.
func Run(ctx context.Context, o Options, kafka kafka.Options, db *sql.Shards, log *slog.Logger) (_ *Report, err error) {
	c, err := Compare(ctx, o, kafka, db, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return c.Report, nil
}

// Comparison is MySQL and the stream beside each other, as of one snapshot of each shard.
// Close removes its temporary files.
type Comparison struct {
	Report *Report
	// Source is like-updates, as Kafka has it now.
	Source    sql.Source
	ClusterID string

	opts          Options
	kafka         kafka.Options
	db            *sql.Shards
	log           *slog.Logger
	dir           string
	ledger        *Ledger
	cl            *kgo.Client
	topics        kafka.Topics
	compactionLag time.Duration
	layout        schema.Layout // of the state table, as it said at the beginning
	layouts       uint32        // how many layouts there were before
	parts         []*part

	mu sync.Mutex // guards Report while partitions are read beside each other
}

// part is one partition's share.
type part struct {
	id      int32
	applied sql.Position // MySQL's
	// placed: applied is a position in this like-updates, so that there is something
	// to compare with.
	placed bool
	// progress is that of the state table, in a deep comparison.
	progress    schema.Progress
	hasProgress bool
	// layout is that of what was laid down.
	layout layout
	// totals of MySQL's two tables; they are the same where nothing is wrong.
	posts, hours schema.Counts
}

// Compare does it. ctx bounds all of it; each single wait is bounded, too.
func Compare(ctx context.Context, o Options, kafka kafka.Options, db *sql.Shards, log *slog.Logger) (_ *Comparison, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	began := time.Now()
	c := &Comparison{opts: o, kafka: kafka, db: db, log: log, Report: newReport(o.Deep)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.cl, err = kafka.NewClient(log); err != nil {
		return nil, err
	}
	if err := c.lookUp(ctx); err != nil {
		return nil, err
	}
	if c.dir, err = os.MkdirTemp(o.TempDir, "kudos-audit-"); err != nil {
		return nil, fmt.Errorf("folder for temporary files: %w", err)
	}
	if c.ledger, err = openLedger(filepath.Join(c.dir, "ledger"), o.CacheBytes); err != nil {
		return nil, err
	}
	if err := c.copyMySQL(ctx); err != nil {
		return nil, err
	}
	if err := c.readStream(ctx); err != nil {
		return nil, err
	}
	c.checkLayouts()
	if err := c.compare(); err != nil {
		return nil, err
	}
	r := c.Report
	for _, p := range c.parts {
		r.Partitions = append(r.Partitions, PartitionReport{
			Partition: p.id, Shard: c.db.Of(p.id).Shard().Index, Compared: p.placed, NextOffset: p.applied.NextOffset, NextSeq: p.applied.NextSeq, StateSeq: p.progress.NextSeq,
		})
	}
	r.Equal = r.Differences() == 0
	r.Seconds = time.Since(began).Seconds()
	return c, nil
}

// Close removes the temporary files.
func (c *Comparison) Close() error {
	var err error
	if c.ledger != nil {
		err = c.ledger.close()
		c.ledger = nil
	}
	if c.dir != "" {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	if c.cl != nil {
		c.cl.Close()
	}
	return err
}

// lookUp asks Kafka which topics there are, and how soon like-updates may be compacted.
func (c *Comparison) lookUp(ctx context.Context) error {
	var err error
	if c.topics, err = kafka.LookUpTopics(ctx, c.cl, schema.TopicState, schema.TopicUpdates); err != nil {
		return err
	}
	c.ClusterID = c.topics.ClusterID
	t := c.topics.ByName[schema.TopicUpdates]
	c.Source = sql.Source{Topic: schema.TopicUpdates, TopicID: t.ID, Partitions: t.Partitions}
	for id := range t.Partitions {
		c.parts = append(c.parts, &part{id: id, applied: sql.Position{LeaderEpoch: -1}})
	}
	progress, err := table.LastProgress(ctx, c.cl, 0)
	if err != nil {
		return err
	}
	c.layout = schema.Layout{Partitions: t.Partitions}
	if progress != nil {
		c.layouts, c.layout = progress.Layouts, progress.Layout()
		c.layout.Partitions = t.Partitions // if they differ, the partitions say so
	}
	configs, err := kadm.NewClient(c.cl).DescribeTopicConfigs(ctx, schema.TopicUpdates)
	if err != nil {
		return fmt.Errorf("reading the settings of topic %s: %w", schema.TopicUpdates, err)
	}
	for _, resource := range configs {
		if resource.Err != nil { // not allowed, for one: no setting would be told from none that may be seen
			return fmt.Errorf("reading the settings of topic %s: %w", schema.TopicUpdates, resource.Err)
		}
		for _, config := range resource.Configs {
			if config.Key == "min.compaction.lag.ms" {
				ms, err := strconv.ParseInt(config.MaybeValue(), 10, 64)
				if err != nil {
					return fmt.Errorf("min.compaction.lag.ms of topic %s: %w", schema.TopicUpdates, err)
				}
				c.compactionLag = time.Duration(ms) * time.Millisecond
			}
		}
	}
	return nil
}

// readStream lays down what the stream says, partition by partition.
func (c *Comparison) readStream(ctx context.Context) error {
	if c.opts.Deep {
		phase := c.opts.Progress.Begin("reading the state table", "offsets", c.offsets(ctx, schema.TopicState, false))
		err := c.eachPart(ctx, func(ctx context.Context, p *part) error { return c.recount(ctx, p, phase) })
		phase.End()
		if err != nil {
			return err
		}
	}
	read, from := c.lastCounts, false
	if c.opts.Deep {
		read, from = c.laterDeltas, true
	}
	phase := c.opts.Progress.Begin("reading like-updates", "records", c.offsets(ctx, schema.TopicUpdates, from))
	defer phase.End()
	return c.eachPart(ctx, func(ctx context.Context, p *part) error {
		if !p.placed {
			return nil
		}
		return read(ctx, p, phase)
	})
}

// offsets is how many offsets there are to read of a topic, for a progress bar.
func (c *Comparison) offsets(ctx context.Context, topic string, fromApplied bool) (n int64) {
	for _, p := range c.parts {
		start, end, err := kafka.Bounds(ctx, c.cl, topic, p.id)
		if err != nil {
			return 0
		}
		if fromApplied {
			start = p.applied.NextOffset
		}
		n += max(0, end-start)
	}
	return n
}

// eachPart does something for the partitions, a few at a time. A discord or an unknown
// is noted, and the partition is not compared.
func (c *Comparison) eachPart(ctx context.Context, do func(context.Context, *part) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(c.opts.Parallel)
	for _, p := range c.parts {
		g.Go(func() error {
			err := do(ctx, p)
			var d discord
			var u unknowable
			c.mu.Lock()
			defer c.mu.Unlock()
			switch {
			case errors.As(err, &d):
				p.placed = false
				c.Report.Problems = append(c.Report.Problems, string(d))
			case errors.As(err, &u):
				p.placed = false
				c.Report.Unknown = append(c.Report.Unknown, string(u))
			default:
				return err
			}
			return nil
		})
	}
	return g.Wait()
}

// problem notes something that is wrong and none of a row.
func (c *Comparison) problem(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Report.Problems = append(c.Report.Problems, fmt.Sprintf(format, args...))
}
