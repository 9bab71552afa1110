package processor

import (
	"cmp"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"kudos/sql"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// Workers makes the workers of both groups, one for each assigned partition.
type Workers struct {
	opts    Options
	kafka   kafka.Clients
	stores  *store.Set
	db      *sql.Shards
	log     *slog.Logger
	metrics *metrics

	// FoldAtATime is how many events are folded before their records are sent: Kafka takes
	// those while the next ones are folded, all in one transaction. To be changed before
	// the first worker is made, if at all.
	FoldAtATime int
	// Beside runs what the fold has done beside itself (stages.go); by default a goroutine
	// does. To be changed before the first worker is made, if at all.
	Beside func(func()) (wait func())

	rooms sync.Pool // of *recordRoom
}

// NewWorkers does no I/O. stores and db stay the caller's; none of the stores has been
// made yet.
func NewWorkers(opts Options, kafka kafka.Clients, stores *store.Set, db *sql.Shards, log *slog.Logger, reg prometheus.Registerer) *Workers {
	stores.BufferBytes = cmp.Or(stores.BufferBytes, uint64(opts.BufferBytes))
	return &Workers{opts: opts, kafka: kafka, stores: stores, db: db, log: log, metrics: newMetrics(reg), FoldAtATime: foldAtATime, Beside: beside}
}

// Fold makes a worker of latest-like-action.
func (w *Workers) Fold(a stream.Assignment) stream.Worker {
	return &folder{
		partition: a.Partition, member: a.Member, opts: &w.opts, kafka: w.kafka, stores: w.stores,
		metrics: w.metrics, log: w.log, atATime: w.FoldAtATime, beside: w.Beside, rooms: &w.rooms,
	}
}

const foldAtATime = 25_000

// Count makes a worker of like-count.
func (w *Workers) Count(a stream.Assignment) stream.Worker {
	return &counter{
		partition: a.Partition, opts: &w.opts, kafka: w.kafka, db: w.db.Of(a.Partition),
		metrics: w.metrics, log: w.log,
	}
}
