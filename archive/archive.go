// Package archive writes like-updates to hourly Parquet files, for queries over every change of a count. It is a second
// sink of like-updates, next to MySQL.
//
//	like-updates ──► hour=2026-11-21T13/p3-…-….parquet
//	                 _p3.json: how far partition 3 is archived
//
// A row is one net change of a post in a region and minute. Each row is in exactly one file, across crashes and
// restarts: the position that is written with a file decides whether its rows are archived (directory.go). The archive
// is not a consumer group: its directory holds the position, and one process writes to it.
package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// name identifies the archive in metrics and readiness, where other roles use their consumer group.
const name = "archive"

// Archive is the archive role.
type Archive struct {
	opts  Options
	kafka kafka.Options
	log   *slog.Logger

	rows, files, bytes prometheus.Counter

	follower *stream.Follower
	table    Table
	contents *contents // set by Run
	left     sync.Map  // by partition: the error of the last Close, if it could not finish the open file
}

// New returns an archive; it starts nothing.
func New(opts Options, kafka kafka.Options, log *slog.Logger, reg prometheus.Registerer) (*Archive, error) {
	if err := errors.Join(opts.Validate(), kafka.Validate()); err != nil {
		return nil, err
	}
	a := &Archive{opts: opts, kafka: kafka, log: log.With("role", name)}
	var err error
	if a.table, err = opts.openTable(a.log); err != nil {
		return nil, err
	}
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(reg).NewCounter(prometheus.CounterOpts{Namespace: "kudos", Name: name, Help: help})
	}
	a.rows = counter("archive_rows_total", "Rows of finished files.")
	a.files = counter("archive_files_total", "Finished files.")
	a.bytes = counter("archive_bytes_total", "Bytes of finished files.")
	a.follower = stream.NewFollower(stream.ProcessorOptions{
		Group: name, Input: schema.TopicUpdates, LossAction: elsewhere, Kafka: kafka,
		MaxBatch: maxBatch, TickInterval: min(opts.RotateInterval, time.Second),
		ParkInterval: opts.ParkInterval, ShutdownTimeout: shutdownTimeout,
	}, func(of stream.Assignment) stream.Worker { return newPartition(a, of) }, nil, a.log)
	reg.MustRegister(stream.NewRoleCollector(name, a.follower.Status))
	return a, nil
}

const (
	maxBatch        = 20_000           // updates; at most twice as many are buffered, over all partitions
	shutdownTimeout = 10 * time.Second // of the batch in flight at shutdown
)

// Run archives until ctx ends, then finishes the open files. While Kafka is unavailable it waits instead of returning.
func (a *Archive) Run(ctx context.Context) (err error) {
	store, err := a.opts.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	a.contents = &contents{Store: store, table: a.table, columns: a.opts.columns()}
	topics, err := a.lookUp(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	var park *stream.ParkError
	if err := a.contents.belongTo(updatesOf(topics)); errors.As(err, &park) {
		return fmt.Errorf("%w (action: %s)", err, park.Action)
	} else if err != nil {
		return err
	}
	tables, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { a.table.Run(tables, store) })
	err = a.follower.Run(ctx)
	stop() // it commits the files that Run finished at last
	running.Wait()
	for _, left := range a.left.Range {
		err = errors.Join(err, left.(error))
	}
	return err
}

func updatesOf(topics kafka.Topics) identity {
	updates := topics.ByName[schema.TopicUpdates]
	return identityOf(topics.ClusterID, updates.ID, updates.Partitions)
}

// lookUp waits until Kafka answers and like-updates exists, or ctx ends.
func (a *Archive) lookUp(ctx context.Context) (kafka.Topics, error) {
	cl, err := a.kafka.NewClient(a.log)
	if err != nil {
		return kafka.Topics{}, err
	}
	defer cl.Close()
	for {
		topics, err := kafka.LookUpTopics(ctx, cl, schema.TopicUpdates)
		if err == nil || ctx.Err() != nil {
			return topics, nil
		}
		a.follower.NotYet(err)
		a.log.Warn("waiting for the topic", "topic", schema.TopicUpdates, "error", err)
		kafka.Sleep(ctx, a.opts.ParkInterval)
	}
}

// Ready returns nil if every partition is being archived. Otherwise the error has the reason and the action.
func (a *Archive) Ready() error {
	statuses, err := a.follower.Status()
	if err != nil {
		return err
	}
	return errors.Join(stream.ReadyOf(name, statuses), a.table.Ready())
}

// Detail returns the status of each partition, for /readyz?verbose.
func (a *Archive) Detail() any {
	statuses, err := a.follower.Status()
	group := stream.GroupStatus{Group: name, Partitions: statuses}
	if err != nil {
		group.Waits = err.Error()
	}
	return []stream.GroupStatus{group}
}
