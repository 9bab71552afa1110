package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	log     *slog.Logger
	stores  *store.Set
	standby *store.Set // nil: no copies of what others own
	workers *Workers

	fold, apply *stream.Processor
}

// New makes a processor. It starts nothing.
func New(opts Options, kafka kafka.Options, db *sql.Shards, log *slog.Logger, reg prometheus.Registerer) (*Processor, error) {
	if err := errors.Join(opts.Validate(), kafka.Validate()); err != nil {
		return nil, err
	}
	p := &Processor{opts: opts, kafka: kafka, log: log}
	p.stores = store.NewSet(opts.StateDir, opts.CacheBytes, log)
	p.workers = NewWorkers(opts, kafka, p.stores, db, log, reg)
	common := stream.ProcessorOptions{
		Kafka:           kafka,
		MaxBatch:        opts.MaxBatch,
		TickInterval:    time.Second,
		ParkInterval:    opts.ParkInterval,
		SessionTimeout:  opts.SessionTimeout,
		ShutdownTimeout: opts.ShutdownTimeout,
	}
	foldOpts := common
	foldOpts.Group, foldOpts.Input = schema.GroupFold, schema.TopicLikes
	foldOpts.Check, foldOpts.LossRemedy = table.CheckPartitions, table.ActionAcceptLoss
	foldOpts.Table, foldOpts.Stores = true, p.stores
	if opts.Standby {
		p.standby = p.stores.Standby()
		foldOpts.Standby = p.standby
	}
	p.fold = stream.NewProcessor(foldOpts, p.workers.Fold, log)
	applyOpts := common
	applyOpts.Group, applyOpts.Input = schema.GroupApply, schema.TopicUpdates
	applyOpts.CommitPositions, applyOpts.LossRemedy = true, table.ActionRebuild
	p.apply = stream.NewProcessor(applyOpts, p.workers.Count, log)
	reg.MustRegister(stream.NewCollector(p.fold, p.apply), store.NewCollector("processor", p.stores), shardCollector{p.apply, db})
	if opts.Standby {
		reg.MustRegister(stream.NewStandbyCollector(p.fold), store.NewCollector("standby", p.standby))
	}
	return p, nil
}

// Run works until ctx ends, and then finishes the batches in hand. Of the servers'
// troubles it ends over none, but a cluster that can never do, and databases that are
// not those of the settings.
func (p *Processor) Run(ctx context.Context) error {
	defer p.stores.Close()
	if p.standby != nil {
		defer p.standby.Close()
	}
	if err := p.checkCluster(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.workers.db.CheckShards(ctx) })
	g.Go(func() error { return p.fold.Run(ctx) })
	g.Go(func() error { return p.apply.Run(ctx) })
	return g.Wait()
}

// checkCluster waits for Kafka to answer, and refuses a cluster that is too old.
func (p *Processor) checkCluster(ctx context.Context) error {
	cl, err := p.kafka.NewClient(p.log)
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		err := kafka.RequireTransactionVersion2(ctx, cl)
		var refusal *kafka.SetupError
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case errors.As(err, &refusal):
			return fmt.Errorf("%w; run: %s", refusal, refusal.Remedy)
		}
		p.log.Warn("Kafka does not answer", "brokers", p.kafka.Brokers, "error", err)
		p.fold.NotYet(err)
		p.apply.NotYet(err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(p.opts.ParkInterval):
		}
	}
}

// Ready is nil when every assigned partition of both groups is being worked on.
func (p *Processor) Ready() error { return errors.Join(p.fold.Ready(), p.apply.Ready()) }

// Detail tells of each assigned partition.
func (p *Processor) Detail() any { return stream.Detail(p.fold, p.apply) }

// Lag returns how many records both groups have before them.
func (p *Processor) Lag() int64 {
	var lag int64
	for _, g := range []*stream.Processor{p.fold, p.apply} {
		statuses, _ := g.Status()
		for _, s := range statuses {
			lag += s.Lag
		}
	}
	return lag
}
