package processor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"kudos/processor/fold/table"
	"kudos/schema"
	"kudos/sql"
	"kudos/stream"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// Processor is the role: both groups in one process.
type Processor struct {
	opts    Options
	kafka   kafka.Options
	db      *sql.Shards
	log     *slog.Logger
	stores  *store.Set
	standby *store.Set // nil: no standby replicas

	fold, apply *stream.Processor
}

// New returns a processor. It starts nothing.
func New(opts Options, kafka kafka.Options, db *sql.Shards, log *slog.Logger, reg prometheus.Registerer,
) (*Processor, error) {
	if err := errors.Join(opts.Validate(), kafka.Validate()); err != nil {
		return nil, err
	}
	p := &Processor{opts: opts, kafka: kafka, db: db, log: log}
	p.stores = store.NewSet(opts.StateDir, opts.CacheBytes, log)
	workers := NewWorkers(opts, kafka, p.stores, db, log, reg)
	foldOpts := stream.ProcessorOptions{Kafka: kafka, ProcessID: stream.ProcessID(opts.StateDir),
		MaxBatch: opts.MaxBatch, TickInterval: time.Second, ParkInterval: opts.ParkInterval,
		SessionTimeout: opts.SessionTimeout, ShutdownTimeout: opts.ShutdownTimeout}
	applyOpts := foldOpts
	applyOpts.MaxBatch *= applyBatch
	foldOpts.CollectFor = opts.CollectFor
	foldOpts.Group, foldOpts.Input = schema.GroupFold, schema.TopicLikes
	foldOpts.Check, foldOpts.LossAction = table.CheckPartitions, table.ActionAcceptLoss
	foldOpts.Table = true
	if opts.Standby {
		p.standby = p.stores.Standby()
		foldOpts.Standby = p.standby
	}
	p.fold = stream.NewProcessor(foldOpts, workers.Fold, log)
	applyOpts.Group, applyOpts.Input = schema.GroupApply, schema.TopicUpdates
	applyOpts.CommitPositions, applyOpts.LossAction = true, table.ActionRebuild
	p.apply = stream.NewProcessor(applyOpts, workers.Count, log)
	reg.MustRegister(stream.NewCollector(p.fold), stream.NewCollector(p.apply),
		store.NewCollector("processor", p.stores), shardCollector{p.apply, db})
	if opts.Standby {
		reg.MustRegister(stream.NewStandbyCollector(p.fold), store.NewCollector("standby", p.standby))
	}
	return p, nil
}

// Run works until ctx ends, and then finishes the batches in flight. It retries all errors of servers, but returns if
// the cluster is unsuitable or the databases are not those of the settings.
func (p *Processor) Run(ctx context.Context) error {
	defer p.stores.Close()
	if p.standby != nil {
		defer p.standby.Close()
	}
	if err := p.checkCluster(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.db.CheckShards(ctx) })
	g.Go(func() error { return p.fold.Run(ctx) })
	g.Go(func() error { return p.apply.Run(ctx) })
	return g.Wait()
}

// applyBatch is how many times as many records like-count applies in one transaction, when it is behind: upserts of
// sorted rows cost less, the closer the rows are in the table.
const applyBatch = 4

// checkCluster waits for Kafka to answer, and returns an error if the cluster is too old.
func (p *Processor) checkCluster(ctx context.Context) error {
	cl, err := p.kafka.NewClient(p.log)
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		err := kafka.RequireTransactionVersion2(ctx, cl)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if refusal, ok := errors.AsType[*kafka.SetupError](err); ok {
			return fmt.Errorf("%w; run: %s", refusal, refusal.Action)
		}
		p.fold.NotYet(err)
		p.apply.NotYet(err)
		kafka.Sleep(ctx, p.opts.ParkInterval)
	}
}

// Ready returns nil if every assigned partition of both groups is running.
func (p *Processor) Ready() error { return errors.Join(p.fold.Ready(), p.apply.Ready()) }

// Detail returns the status of each assigned partition.
func (p *Processor) Detail() any { return stream.Detail(p.fold, p.apply) }

// Lag returns the consumer lag of both groups, in records.
func (p *Processor) Lag() (lag int64) {
	for _, group := range stream.Detail(p.fold, p.apply) {
		for _, s := range group.Partitions {
			lag += s.Lag
		}
	}
	return lag
}

// Workers creates the workers of both groups, one for each assigned partition.
type Workers struct {
	opts    Options
	kafka   kafka.Clients
	stores  *store.Set
	db      *sql.Shards
	log     *slog.Logger
	metrics *metrics

	// FoldChunk is the chunk size: how many events are folded before their records are sent. Kafka takes those while
	// the next chunk is folded, all in one transaction. To be changed before the first worker is created, if at all.
	FoldChunk int
	// Concurrently runs a function concurrently with the fold, by default in a goroutine. Change it like FoldChunk.
	Concurrently func(func()) (wait func())

	buffers sync.Pool // of *recordBuffer
}

const foldChunk = 25_000

// NewWorkers does no I/O. The caller owns stores and db; no store may have been created yet.
func NewWorkers(opts Options, kafka kafka.Clients, stores *store.Set, db *sql.Shards, log *slog.Logger,
	reg prometheus.Registerer,
) *Workers {
	stores.BufferBytes = cmp.Or(stores.BufferBytes, uint64(opts.BufferBytes))
	return &Workers{opts: opts, kafka: kafka, stores: stores, db: db, log: log, metrics: newMetrics(reg),
		FoldChunk: foldChunk, Concurrently: concurrently,
		buffers: sync.Pool{New: func() any { return &recordBuffer{} }}}
}

// Fold returns a worker of latest-like-action.
func (w *Workers) Fold(a stream.Assignment) stream.Worker {
	local := w.stores.New(schema.TopicState, a.Partition)
	txn := kafka.NewTxn(kafka.TxnOptions{
		IDs:    schema.FoldTransactionalIDs(a.Partition),
		Member: a.Member, Group: schema.GroupFold,
		Source: kafka.LogPartition{Topic: schema.TopicLikes, Partition: a.Partition},
		Kafka:  w.kafka, Timeout: w.opts.TransactionTimeout, BatchMaxBytes: schema.BatchMaxBytes,
	}, w.log)
	return &foldWorker{Workers: w, Txn: txn, partition: a.Partition, store: local}
}

// Count returns a worker of like-count.
func (w *Workers) Count(a stream.Assignment) stream.Worker {
	return &countWorker{Workers: w, partition: a.Partition, db: w.db.Of(a.Partition)}
}
