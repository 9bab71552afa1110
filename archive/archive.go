// Package archive brings like-updates into Parquet files, by hour, for whoever wants to ask
// questions of every change: a second sink of the stream, beside MySQL.
//
//	like-updates ──► hour=2026-11-21T13/p3-…-….parquet
//	                 _p3.json: how far partition 3 has come
//
// A row is one net change of a post in a region and minute. Each is in exactly one file, over
// crashes and restarts: the position that is written with a file decides whether its rows are
// archived (position.go). It is no consumer group: the folder says where to go on, and there is
// one process that writes to it.
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

// name is the archive's in metrics and readiness, where others have their group.
const name = "archive"

// Archive is the role.
type Archive struct {
	opts          Options
	kafka         kafka.Options
	log           *slog.Logger
	checkInterval time.Duration

	rows, files, bytes prometheus.Counter

	follower *stream.Follower
	folder   *folder // while it runs

	left struct {
		sync.Mutex
		errs []error // of the files in hand, at the end
	}
}

// New makes an archive; it starts nothing.
func New(opts Options, kafka kafka.Options, log *slog.Logger, reg prometheus.Registerer) (*Archive, error) {
	if err := errors.Join(opts.Validate(), kafka.Validate()); err != nil {
		return nil, err
	}
	a := &Archive{opts: opts, kafka: kafka, log: log.With("role", name), checkInterval: checkInterval}
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(reg).NewCounter(prometheus.CounterOpts{Namespace: "kudos", Name: name, Help: help})
	}
	a.rows = counter("archive_rows_total", "Rows of finished files.")
	a.files = counter("archive_files_total", "Finished files.")
	a.bytes = counter("archive_bytes_total", "Bytes of finished files.")
	a.follower = stream.NewFollower(stream.ProcessorOptions{
		Group: name, Input: schema.TopicUpdates, LossRemedy: elsewhere, Kafka: kafka,
		MaxBatch: maxBatch, TickInterval: min(opts.RotateInterval, time.Second), ParkInterval: opts.ParkInterval, ShutdownTimeout: shutdownTimeout,
	}, func(of stream.Assignment) stream.Worker { return newPartition(a, a.folder, of) }, a.begun, a.log)
	reg.MustRegister(stream.NewRoleCollector(name, a.follower.Status))
	return a, nil
}

const (
	// maxBatch is how many updates are taken in at a time; twice as many wait at most, of all partitions together.
	maxBatch = 20_000
	// shutdownTimeout bounds what is taken in at the end.
	shutdownTimeout = 10 * time.Second
)

// Run archives until ctx ends, and then finishes the files in hand. Over Kafka's troubles it does
// not end.
func (a *Archive) Run(ctx context.Context) (err error) {
	if a.folder, err = openFolder(a.opts.Dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.folder.Close()) }()
	topics, err := a.lookUp(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	var park *stream.ParkError
	if err := a.folder.belongTo(identityOf(topics)); errors.As(err, &park) {
		return fmt.Errorf("%w (remedy: %s)", err, park.Remedy)
	} else if err != nil {
		return err
	}
	return errors.Join(a.follower.Run(ctx), errors.Join(a.left.errs...))
}

// belongTo has the folder be that of a log, for all partitions alike.
func (a *Archive) belongTo(id identity) error {
	a.left.Lock()
	defer a.left.Unlock()
	return a.folder.belongTo(id)
}

// begun forgets what the last session left: those that begin again go on with it.
func (a *Archive) begun(workers []stream.Worker) {
	a.left.Lock()
	defer a.left.Unlock()
	if workers != nil {
		a.left.errs = nil
	}
}

// leave keeps the error of a partition's last file.
func (a *Archive) leave(err error) {
	a.left.Lock()
	defer a.left.Unlock()
	if err != nil {
		a.left.errs = append(a.left.errs, err)
	}
}

// lookUp waits for Kafka and for the topic.
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
		a.log.Warn("waits for the topic", "topic", schema.TopicUpdates, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(a.opts.ParkInterval):
		}
	}
}

// Ready is nil when every partition is being archived, and otherwise says why one is not, and
// what helps.
func (a *Archive) Ready() error {
	statuses, err := a.follower.Status()
	if err != nil {
		return err
	}
	return stream.ReadyOf(name, statuses)
}

// Detail tells of each partition.
func (a *Archive) Detail() any {
	group := stream.GroupStatus{Group: name}
	var err error
	if group.Partitions, err = a.follower.Status(); err != nil {
		group.Waits = err.Error()
	}
	return []stream.GroupStatus{group}
}
