// Package producer takes likes in over HTTP and writes them to the likes topic.
//
// In come requests, single or NDJSON batches (openapi.yaml and docs/http.md list them). Out go
// records in Kafka, keyed by post, and for each request an answer that claims no
// more than is known: 202 only once Kafka has the event, with its place; otherwise
// what is wrong, or that it was not acknowledged and is safe to repeat.
//
//	request ─► who is it (access.go) ─► body ─► slot ─► parse (request.go, lines.go) ─► publish (publish.go) ─► Kafka
//	   ▲                                                                                     │
//	   └── 202 {partition, offset}, or a problem ◄───────────────────────────────────────────┘
//
// An event is stamped with the time of its receipt before anything else is done with
// it, so that a retry inside the client or a late delivery keeps its place.
package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"kudos/httpserver"
	"kudos/httpserver/bodies"
	"kudos/schema"
	"kudos/stream/kafka"
	"kudos/stream/kafka/tracing"
)

// Producer is the role.
type Producer struct {
	options   Options
	log       *slog.Logger
	metrics   *metrics
	publisher *publisher
	access    *access
	handler   http.Handler

	requests, batches   *semaphore.Weighted // slots for requests, and for batches among them
	bodies, batchBodies *bodies.Reader      // read before a slot is taken

	stopping    atomic.Bool
	certificate *httpserver.Certificate // nil: plain HTTP
	*httpserver.Point
}

// New checks the options and puts the parts together; it does no I/O. The metrics
// are registered with reg.
func New(o Options, kafka kafka.Options, log *slog.Logger, reg prometheus.Registerer) (*Producer, error) {
	if err := errors.Join(o.Validate(), kafka.Validate()); err != nil {
		return nil, fmt.Errorf("producer options: %w", err)
	}
	log = log.With("role", "producer")
	p := &Producer{
		options:     o,
		log:         log,
		metrics:     newMetrics(),
		requests:    semaphore.NewWeighted(int64(o.MaxConcurrentRequests)),
		batches:     semaphore.NewWeighted(int64(o.MaxConcurrentBatches)),
		bodies:      bodies.NewReader(o.MaxBodyBytes, o.MaxConcurrentRequests),
		batchBodies: bodies.NewReader(o.MaxBatchBytes, o.MaxConcurrentBatches),
		certificate: httpserver.NewCertificate("producer", o.TLSCert, o.TLSKey, log),
		Point:       httpserver.NewPoint("producer", "producer.http_addr", o.HTTPAddr),
	}
	var err error
	if p.access, err = newAccess(o, log); err != nil {
		return nil, fmt.Errorf("producer options: %w", err)
	}
	layout, err := schema.NewLayout(1, o.UserBuckets) // how many partitions does not matter to keys
	if err != nil {
		return nil, fmt.Errorf("producer options: %w", err)
	}
	p.publisher = newPublisher(o, layout, kafka, log, p.metrics)
	p.handler = tracing.Handler(p.routes(), "producer")
	if err := p.metrics.register(reg, p.publisher.bufferedRecords, p.access.keys.readTimestamp); err != nil {
		return nil, fmt.Errorf("registering the producer's metrics: %w", err)
	}
	return p, nil
}

// Handler serves the producer's routes, for a server of the caller's own. It takes
// likes only while Run runs.
func (p *Producer) Handler() http.Handler { return p.handler }

// Ready is nil while Kafka answers and callers can be told apart, and otherwise says what
// is wrong.
func (p *Producer) Ready() error {
	if p.stopping.Load() {
		return errors.New("producer: shutting down")
	}
	if p.access.keys != nil {
		if err := p.access.keys.ready(); err != nil {
			return err
		}
	}
	return p.publisher.ready()
}

// Run listens and serves.
func (p *Producer) Run(ctx context.Context) error {
	ln, err := p.Listen(ctx)
	if err != nil {
		return err
	}
	return p.Serve(ctx, ln)
}

// Serve serves on a listener until ctx ends or that fails. Then it stops accepting, lets
// the requests in hand end and the client deliver what it holds, both together within
// ShutdownTimeout, and leaves nothing running. Serve, or Run, once.
func (p *Producer) Serve(ctx context.Context, ln net.Listener) error {
	if err := p.Begin(); err != nil {
		return errors.Join(err, ln.Close())
	}
	server := &http.Server{
		Handler:           p.handler,
		ReadHeaderTimeout: p.options.ReadHeaderTimeout,
		ReadTimeout:       p.options.ReadTimeout,
		WriteTimeout:      p.options.WriteTimeout,
		IdleTimeout:       p.options.IdleTimeout,
		MaxHeaderBytes:    p.options.MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelWarn),
	}
	if err := p.certificate.Load(server); err != nil {
		return errors.Join(err, ln.Close())
	}
	if err := p.publisher.open(); err != nil {
		return errors.Join(err, ln.Close())
	}
	p.Tell(ln)
	p.log.Info("taking likes", "addr", p.Addr()) // benchmarks find it by this (package bench)

	g, running := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := p.certificate.Serve(server, ln); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("producer: serving on %s: %w", p.Addr(), err)
		}
		return nil
	})
	g.Go(func() error { p.publisher.watch(running); return nil })
	g.Go(func() error { p.certificate.Watch(running); return nil })
	if p.access.keys != nil {
		g.Go(func() error { p.access.keys.run(running); return nil })
	}
	g.Go(func() error { <-running.Done(); return p.shutdown(ctx, server) })
	return g.Wait()
}

// shutdown ends the requests first and the client last: a request in hand still
// needs it. Its deadline stands apart from ctx, which has ended.
func (p *Producer) shutdown(ctx context.Context, server *http.Server) error {
	p.stopping.Store(true)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.options.ShutdownTimeout)
	defer cancel()

	err := server.Shutdown(bounded)
	if err != nil {
		// A request that is still being received. Nothing of it was written: an event
		// goes to Kafka only once its request is read, and that wait is shorter.
		err = fmt.Errorf("producer: requests were cut off after %s: %w", p.options.ShutdownTimeout, errors.Join(err, server.Close()))
	}
	if left := p.publisher.close(bounded); left > 0 {
		// Each of their requests was told that it is not acknowledged.
		p.log.Warn("events were given up at shutdown; none of them was answered as accepted", "events", left)
	}
	// Handlers cut off above end at once now; a new one finds no client.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.options.AckTimeout)
	defer cancel()
	if waitErr := p.requests.Acquire(ending, int64(p.options.MaxConcurrentRequests)); waitErr != nil {
		return errors.Join(err, fmt.Errorf("producer: requests did not end: %w", waitErr))
	}
	p.requests.Release(int64(p.options.MaxConcurrentRequests))
	return err
}
