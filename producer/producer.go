// Package producer accepts likes over HTTP and publishes them to Kafka.
//
// Requests are single likes or NDJSON batches (openapi.yaml and docs/http.md list them). Each becomes records in the
// likes topic, keyed by post, and is answered with no more than is known: 202 only once Kafka has the event, with its
// position; otherwise what is wrong, or that it was not acknowledged and is safe to repeat.
//
//	request ─► slot (routes.go) ─► who is it (access.go) ─► parse (like.go, batch.go) ─► publish (publish.go) ─► Kafka
//	   ▲                                                                                     │
//	   └── 202 {partition, offset}, or a problem ◄───────────────────────────────────────────┘
//
// An event is stamped with the time of its receipt before anything else is done with it, so that a retry inside the
// client or a late delivery keeps its place.
package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"kudos/httpserver"
	"kudos/schema"
	"kudos/stream/kafka"
	"kudos/stream/kafka/tracing"
)

// Producer is the role.
type Producer struct {
	options Options
	kafka   kafka.Options
	layout  schema.Layout // names buckets in keys
	log     *slog.Logger
	metrics *metrics
	*httpserver.Server

	tokens            *jwt.Parser
	keys              *keyring // nil unless tokens are verified
	gateways, proxies networks
	addressRate       *limiter[netip.Addr] // of requests
	userRate          *limiter[uint64]     // of events

	requests, batches   *semaphore.Weighted    // slots for requests, and for batches among them
	bodies, batchBodies *httpserver.BodyReader // read before a slot is taken
	buffer              *semaphore.Weighted    // of MaxBufferedRecords

	client atomic.Pointer[kgo.Client] // nil unless running
	health health
}

// New checks the options and puts the parts together; it does no I/O. The metrics are registered with reg.
func New(o Options, kafka kafka.Options, log *slog.Logger, reg prometheus.Registerer) (*Producer, error) {
	if err := errors.Join(o.Validate(), kafka.Validate()); err != nil {
		return nil, fmt.Errorf("producer options: %w", err)
	}
	layout, err := schema.NewLayout(1, o.UserBuckets) // how many partitions does not matter to keys
	if err != nil {
		return nil, fmt.Errorf("producer options: %w", err)
	}
	log = log.With("role", "producer")
	p := &Producer{
		options: o, kafka: kafka, layout: layout, log: log, metrics: newMetrics(),
		addressRate: newLimiter[netip.Addr](o.AddressRate, o.AddressBurst, maxBuckets),
		userRate:    newLimiter[uint64](o.UserRate, o.UserBurst, maxBuckets),
		requests:    semaphore.NewWeighted(int64(o.MaxConcurrentRequests)),
		batches:     semaphore.NewWeighted(int64(o.MaxConcurrentBatches)),
		bodies:      httpserver.NewBodyReader(o.MaxBodyBytes, o.MaxConcurrentRequests),
		batchBodies: httpserver.NewBodyReader(o.MaxBatchBytes, o.MaxConcurrentBatches),
		buffer:      semaphore.NewWeighted(int64(o.MaxBufferedRecords)),
	}
	if o.Auth == AuthJWT {
		p.tokens, p.keys = newTokenParser(o), newKeyring(o, log)
	}
	p.gateways, _ = parseNetworks(o.AuthTrustedCIDRs) // validated, as are the proxies
	p.proxies, _ = parseNetworks(o.TrustedProxies)
	p.Server = httpserver.NewServer(httpserver.Config{
		Name: "producer", Key: "producer.http_addr", Addr: o.HTTPAddr, TLSCert: o.TLSCert, TLSKey: o.TLSKey,
		Says: "taking likes", // benchmarks find the address by it (package bench)
		HTTP: &http.Server{
			Handler: tracing.Handler(p.routes(), "producer"), MaxHeaderBytes: o.MaxHeaderBytes,
			ReadHeaderTimeout: o.ReadHeaderTimeout, ReadTimeout: o.ReadTimeout,
			WriteTimeout: o.WriteTimeout, IdleTimeout: o.IdleTimeout,
		},
		ShutdownTimeout: o.ShutdownTimeout,
	}, log)
	if err := p.metrics.register(reg, p.bufferedRecords, p.keys.readTimestamp); err != nil {
		return nil, fmt.Errorf("registering the producer's metrics: %w", err)
	}
	return p, nil
}

// Ready is nil while Kafka answers and callers can be told apart, and otherwise says what is wrong.
func (p *Producer) Ready() error {
	if err := p.Server.Ready(); err != nil {
		return err
	}
	if err := p.keys.ready(); err != nil {
		return err
	}
	return p.kafkaReady()
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
// the requests in flight end and the client deliver what it holds, both together within
// ShutdownTimeout, and leaves nothing running. Serve, or Run, once.
func (p *Producer) Serve(ctx context.Context, ln net.Listener) error {
	return p.Server.Serve(ctx, ln, httpserver.Work{
		Open: p.open, Run: []func(context.Context) error{p.watchKafka, p.keys.run}, Close: p.close,
	})
}

// close closes the client, after the last request: one in flight still needs it. If a request is still being received,
// the server has cut it off: an event goes to Kafka only once its request is read, so nothing of it was written.
func (p *Producer) close(ctx context.Context) error {
	client := p.client.Swap(nil)
	if err := client.Flush(ctx); err != nil {
		if left := client.BufferedProduceRecords(); left > 0 {
			// Each of their requests was told that it is not acknowledged.
			p.log.Warn("events were given up at shutdown; none of them was answered as accepted", "events", left)
		}
	}
	client.Close()
	// Handlers that were cut off end at once now; a new one finds no client.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.options.AckTimeout)
	defer cancel()
	all := int64(p.options.MaxConcurrentRequests)
	if err := p.requests.Acquire(ctx, all); err != nil {
		return fmt.Errorf("producer: requests did not end: %w", err)
	}
	p.requests.Release(all)
	return nil
}
