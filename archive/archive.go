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
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"

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

	partitions atomic.Pointer[[]*partition] // nil: not known yet
	waits      atomic.Pointer[error]        // why
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
	reg.MustRegister(stream.NewRoleCollector(name, a.status))
	a.wait(errors.New("not started"))
	return a, nil
}

// Run archives until ctx ends, and then finishes the files in hand. Over Kafka's troubles it does
// not end.
func (a *Archive) Run(ctx context.Context) (err error) {
	f, err := openFolder(a.opts.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for {
		err := a.run(ctx, f)
		if !errors.Is(err, errMore) {
			return err
		}
		a.log.Info("begins again with those that were added", "reason", err)
	}
}

// run archives the partitions that there are, until ctx ends or there are more.
func (a *Archive) run(ctx context.Context, f *folder) error {
	topics, err := a.lookUp(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	id := identityOf(topics)
	var park *stream.ParkError
	if err := f.belongTo(id); errors.As(err, &park) {
		return fmt.Errorf("%w (remedy: %s)", err, park.Remedy)
	} else if err != nil {
		return err
	}
	partitions := make([]*partition, id.Partitions)
	for i := range partitions {
		partitions[i] = newPartition(a, f, id, int32(i))
	}
	a.partitions.Store(&partitions)
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range partitions {
		g.Go(func() error { return p.run(ctx) })
	}
	return g.Wait()
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
		a.wait(err)
		a.log.Warn("waits for the topic", "topic", schema.TopicUpdates, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(a.opts.ParkInterval):
		}
	}
}

func (a *Archive) wait(err error) { a.waits.Store(&err) }

func (a *Archive) status() ([]stream.PartitionStatus, error) {
	partitions := a.partitions.Load()
	if partitions == nil {
		return nil, *a.waits.Load()
	}
	statuses := make([]stream.PartitionStatus, len(*partitions))
	for i, p := range *partitions {
		statuses[i] = p.status()
	}
	return statuses, nil
}

// Ready is nil when every partition is being archived, and otherwise says why one is not, and
// what helps.
func (a *Archive) Ready() error {
	statuses, err := a.status()
	if err != nil {
		return err
	}
	return stream.ReadyOf(name, statuses)
}

// Detail tells of each partition.
func (a *Archive) Detail() any {
	group := stream.GroupStatus{Group: name}
	var err error
	if group.Partitions, err = a.status(); err != nil {
		group.Waits = err.Error()
	}
	return []stream.GroupStatus{group}
}
