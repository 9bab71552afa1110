// Package bridge publishes as likes what another system writes to a topic of its own: the changes of a table that
// Debezium captures, events in JSON, or CloudEvents.
//
//	source topic ─► decode ─► map ─┬─► likes
//	                               └─► likes.dlt   what is no change of a reaction
//
// What a batch becomes, the position after it and the clock (see mapping) are one Kafka transaction, so that each
// source record is published exactly once. A connector may write a change again after a crash; that changes nothing, as
// the latest state of each row comes last.
package bridge

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// Bridge is the role. Several processes share the partitions of the source.
type Bridge struct {
	opts     Options
	mapping  *mapping
	registry Registry // nil without one
	kafka    kafka.Clients
	log      *slog.Logger
	group    *stream.Processor

	events, skipped prometheus.Counter
	deadLetters     *prometheus.CounterVec // by reason
}

// New returns a bridge; it starts nothing.
func New(opts Options, kafka kafka.Options, log *slog.Logger, reg prometheus.Registerer) (*Bridge, error) {
	err := errors.Join(opts.Validate(), kafka.Validate())
	if opts.Topic == "" {
		err = errors.Join(err, errors.New("bridge.topic: the name of the source topic is needed"))
	}
	if err != nil {
		return nil, err
	}
	b := &Bridge{opts: opts, mapping: newMapping(&opts), kafka: kafka, log: log.With("role", "bridge")}
	if opts.Registry.URL != "" {
		if opts.OpenRegistry == nil {
			return nil, errors.New("bridge.registry.url: this build has no client of schema registries; " +
				"use a released program or image, or make build")
		}
		if b.registry, err = opts.OpenRegistry(opts.Registry); err != nil {
			return nil, err
		}
	}
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "kudos", Name: name, Help: help}
	}
	b.events = f.NewCounter(counter("bridge_events_total", "Events published from the source topic."))
	b.skipped = f.NewCounter(counter("bridge_skipped_total", "Source records that change no row, such as tombstones."))
	b.deadLetters = f.NewCounterVec(counter("bridge_dead_letters_total",
		"Source records written to likes.dlt."), []string{"reason"})
	for _, reason := range schema.PoisonReasons {
		b.deadLetters.WithLabelValues(string(reason))
	}
	b.group = stream.NewProcessor(stream.ProcessorOptions{
		Group: opts.Group, Input: opts.Topic, Check: b.check, LossAction: actionLoss, Kafka: kafka,
		MaxBatch: opts.MaxBatch, TickInterval: time.Second, ParkInterval: opts.ParkInterval,
		SessionTimeout: opts.SessionTimeout, ShutdownTimeout: opts.ShutdownTimeout,
	}, b.newWorker, b.log)
	reg.MustRegister(stream.NewCollector(b.group))
	return b, nil
}

const (
	actionSource = "check bridge.topic; if it is right, start the connector or the service that fills it"
	actionLoss   = "stop the bridge and move its group to the offsets that exist, with kafka-consumer-groups.sh " +
		"--reset-offsets; then compare with the source, with kudos audit --against"
)

func (b *Bridge) check(ctx context.Context, cl *kgo.Client) error {
	_, err := kafka.LookUpTopics(ctx, cl, b.opts.Topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return stream.Park(stream.CauseTopics, actionSource, "there is no topic %s", b.opts.Topic)
	}
	return err
}

// Run publishes until ctx ends, then finishes the batches in flight.
func (b *Bridge) Run(ctx context.Context) error { return b.group.Run(ctx) }

// Ready returns nil if every assigned partition is running.
func (b *Bridge) Ready() error { return b.group.Ready() }

// Detail returns the status of each assigned partition.
func (b *Bridge) Detail() any { return stream.Detail(b.group) }
