// Package notify sends milestones and rankings to a webhook, as signed CloudEvents.
//
//	milestones ─┐
//	            ├─► notify ─► POST, again until 2xx
//	trending ───┘        └──► notify.dlt   what the webhook has not taken for GiveUpAfter
//
// Each event is sent at least once, in the order of its partition, with the same id each time. The first start begins
// with what comes then.
package notify

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"

	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// Notify is the role. Several processes share the partitions.
type Notify struct {
	opts   Options
	key    []byte
	kafka  kafka.Options
	client *http.Client
	log    *slog.Logger
	groups []*stream.Processor

	sent, deadLetters *prometheus.CounterVec // by type
	failed            prometheus.Counter
}

// New returns a notifier; it starts nothing.
func New(opts Options, kafka kafka.Options, log *slog.Logger, reg prometheus.Registerer) (*Notify, error) {
	err := errors.Join(opts.Validate(), kafka.Validate())
	if opts.URL == "" {
		err = errors.Join(err, errors.New("notify.url: the URL of the webhook is needed"))
	}
	if err != nil {
		return nil, err
	}
	n := &Notify{opts: opts, kafka: kafka, log: log.With("role", "notify"), client: &http.Client{
		// A redirect could lead anywhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	n.key, _ = key(opts.Secret) // Validate has checked it
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "kudos", Subsystem: "notify", Name: name, Help: help}
	}
	n.sent = f.NewCounterVec(counter("sent_total", "Events that the webhook accepted."), []string{"type"})
	n.deadLetters = f.NewCounterVec(counter("dead_letters_total", "Events written to notify.dlt."), []string{"type"})
	n.failed = f.NewCounter(counter("failed_requests_total", "Requests that the webhook did not answer with 2xx."))
	n.add(opts.Group+"-milestones", schema.TopicMilestones, typeMilestone, reg)
	if len(opts.Rankings) > 0 {
		n.add(opts.Group+"-rankings", schema.TopicTrending, typeRanking, reg)
	}
	return n, nil
}

const maxBatch = 1000

func (n *Notify) add(group, topic, kind string, reg prometheus.Registerer) {
	n.sent.WithLabelValues(kind)
	n.deadLetters.WithLabelValues(kind)
	p := stream.NewProcessor(stream.ProcessorOptions{
		Group: group, Input: topic, CommitPositions: true, LossAction: actionLoss, Kafka: n.kafka, MaxBatch: maxBatch,
		TickInterval: time.Second, ParkInterval: n.opts.ParkInterval, SessionTimeout: n.opts.SessionTimeout,
		ShutdownTimeout: n.opts.ShutdownTimeout,
	}, func(a stream.Assignment) stream.Worker { return &worker{Notify: n, of: a, group: group, next: -1} }, n.log)
	reg.MustRegister(stream.NewCollector(p))
	n.groups = append(n.groups, p)
}

// Run sends until ctx ends, then finishes the requests in flight.
func (n *Notify) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range n.groups {
		g.Go(func() error { return p.Run(ctx) })
	}
	return g.Wait()
}

// Ready returns nil if every assigned partition is running.
func (n *Notify) Ready() error {
	var errs []error
	for _, p := range n.groups {
		errs = append(errs, p.Ready())
	}
	return errors.Join(errs...)
}

// Detail returns the status of each assigned partition.
func (n *Notify) Detail() any { return stream.Detail(n.groups...) }
