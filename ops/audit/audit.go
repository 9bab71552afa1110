// Package audit compares MySQL with the stream while all roles keep running.
//
//	MySQL, snapshots ────────► like_count, like_hourly ─┐
//	                     └──► applied_offset            ├─► ledger (on disk, by post) ─► Report
//	                              │ as of this position │
//	like-updates ────────────► last counts per post ────┤  plain
//	state table ─► pairs, recounted, minus later updates┘  deep
//
// The snapshot includes the position up to which MySQL has counted, and the stream is evaluated as of the same update.
// A plain audit takes the counts in each post's last update before the position. A deep audit recounts the pairs of the
// state table, which is ahead, and subtracts the updates since that position; it trusts only the users' reactions.
// Each shard has its own snapshot, with the positions of its partitions. A row in the wrong shard is a difference. A
// comparison writes only temporary files, and its memory does not grow with the number of posts.
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

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/ops/progress"
	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream/kafka"
)

// Options of an audit.
type Options struct {
	// Deep recounts from the state table, including like_hourly, instead of using the counts in the updates.
	Deep  bool
	Limit int // bounds the rows of each kind in the report
	// TempDir is the directory for temporary files: some 40 bytes per post. A deep audit also stores the state of the
	// partitions that are read concurrently.
	TempDir  string
	Parallel int // how many partitions are read concurrently
	Progress progress.Printer
}

// DefaultOptions suit a machine with a few cores.
func DefaultOptions() Options { return Options{Limit: 20, TempDir: os.TempDir(), Parallel: 4} }

// Validate reports every invalid option.
func (o Options) Validate() (err error) {
	if o.Limit < 0 {
		err = errors.Join(err, fmt.Errorf("limit is %d; it must not be negative", o.Limit))
	}
	if o.Parallel < 1 {
		err = errors.Join(err, fmt.Errorf("parallel is %d; it must be at least 1", o.Parallel))
	}
	return err
}

// Run compares MySQL with the stream, without stopping or changing anything.
func Run(ctx context.Context, o Options, kafka kafka.Options, db *sql.Shards, log *slog.Logger) (_ *Report, err error) {
	c, err := Compare(ctx, o, kafka, db, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return c.Report, nil
}

// Comparison compares MySQL, as of one snapshot per shard, with the stream. Close removes its temporary files.
type Comparison struct {
	Report *Report
	Source sql.Source // like-updates, as it is in Kafka now

	opts          Options
	db            *sql.Shards
	log           *slog.Logger
	dir           string
	ledger        *ledger
	cl            *kgo.Client
	topics        kafka.Topics
	compactionLag time.Duration
	layout        schema.Layout // of the state table, as read at the start
	layouts       uint32        // number of earlier layouts
	parts         []*part

	mu sync.Mutex // guards Report while partitions are read concurrently
}

type part struct {
	id      int32
	applied sql.Position // in MySQL
	// placed means that applied is a valid position in this like-updates, so the partition can be compared.
	placed       bool
	progress     *schema.Progress // in the state table, in a deep audit; nil if there is none
	layout       layout           // the one in effect when the stream was read
	posts, hours schema.Counts    // totals of MySQL's two tables, which must be equal
}

// Compare runs the comparison. The options must be valid. ctx bounds all of it; each single wait is bounded as well.
func Compare(ctx context.Context, o Options, kafka kafka.Options, db *sql.Shards, log *slog.Logger,
) (_ *Comparison, err error) {
	began := time.Now()
	c := &Comparison{opts: o, db: db, log: log, Report: newReport(o.Deep)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.cl, err = kafka.NewClient(log); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{c.lookUp, c.makeFiles, c.copyMySQL, c.readStream, c.compare} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	r := c.Report
	for _, p := range c.parts {
		of := PartitionReport{Partition: p.id, Shard: c.shardOf(p.id), Compared: p.placed,
			NextOffset: p.applied.NextOffset, NextSeq: p.applied.NextSeq}
		if p.progress != nil {
			of.StateSeq = p.progress.NextSeq
		}
		r.Partitions = append(r.Partitions, of)
	}
	r.Equal = r.Differences() == 0
	r.Seconds = time.Since(began).Seconds()
	return c, nil
}

func (c *Comparison) makeFiles(context.Context) (err error) {
	if c.dir, err = os.MkdirTemp(c.opts.TempDir, "kudos-audit-"); err != nil {
		return fmt.Errorf("creating a directory for temporary files: %w", err)
	}
	c.ledger, err = openLedger(filepath.Join(c.dir, "ledger"))
	return err
}

// Close removes the temporary files.
func (c *Comparison) Close() (err error) {
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

// lookUp reads the topics and the compaction lag of like-updates.
func (c *Comparison) lookUp(ctx context.Context) (err error) {
	if c.topics, err = kafka.LookUpTopics(ctx, c.cl, schema.TopicState, schema.TopicUpdates); err != nil {
		return err
	}
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
		c.layout.Partitions = t.Partitions // if they differ, it is reported per partition
	}
	configs, err := kafka.TopicConfigs(ctx, c.cl, schema.TopicUpdates)
	if err != nil {
		return err
	}
	if lag, ok := configs["min.compaction.lag.ms"]; ok {
		ms, err := strconv.ParseInt(lag, 10, 64)
		if err != nil {
			return fmt.Errorf("min.compaction.lag.ms of topic %s: %w", schema.TopicUpdates, err)
		}
		c.compactionLag = time.Duration(ms) * time.Millisecond
	}
	return nil
}

// readStream writes what the stream says to the ledger, partition by partition.
func (c *Comparison) readStream(ctx context.Context) error {
	read := c.lastCounts
	if c.opts.Deep {
		phase := c.opts.Progress.Begin("reading the state table", "offsets", c.offsets(ctx, schema.TopicState, false))
		err := c.eachPart(ctx, func(ctx context.Context, p *part) error { return c.recount(ctx, p, phase) })
		phase.End()
		if err != nil {
			return err
		}
		read = c.laterDeltas
	}
	phase := c.opts.Progress.Begin("reading like-updates", "records", c.offsets(ctx, schema.TopicUpdates, c.opts.Deep))
	defer phase.End()
	return c.eachPart(ctx, func(ctx context.Context, p *part) error {
		if !p.placed {
			return nil
		}
		return read(ctx, p, phase)
	})
}

// offsets is the number of offsets to read from a topic, for a progress bar.
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

// finding excludes a partition from the comparison and is reported; the audit does not fail. A problem means that
// MySQL's position and the log differ. An unknown means that the log no longer has the data, which is not a difference.
type finding struct {
	text    string
	unknown bool
}

func (f finding) Error() string { return f.text }

func problemf(format string, args ...any) error { return finding{text: fmt.Sprintf(format, args...)} }
func unknownf(format string, args ...any) error { return finding{fmt.Sprintf(format, args...), true} }

// eachPart calls do for every partition, several concurrently. A finding excludes the partition from the comparison.
func (c *Comparison) eachPart(ctx context.Context, do func(context.Context, *part) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(c.opts.Parallel)
	for _, p := range c.parts {
		g.Go(func() error {
			err := do(ctx, p)
			f, found := errors.AsType[finding](err)
			if !found {
				return err
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			p.placed = false
			if f.unknown {
				c.Report.Unknown = append(c.Report.Unknown, f.text)
			} else {
				c.Report.Problems = append(c.Report.Problems, f.text)
			}
			return nil
		})
	}
	return g.Wait()
}

// problem reports a problem that does not concern a row.
func (c *Comparison) problem(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Report.Problems = append(c.Report.Problems, fmt.Sprintf(format, args...))
}
