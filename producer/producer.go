// Package producer accepts likes over HTTP and publishes them to Kafka.
//
// Requests are single likes or NDJSON batches (openapi.yaml and docs/http.md list them). Each becomes records in the
// likes topic, keyed by post. The response is 202 only once Kafka has acknowledged the event, with its position.
// Otherwise it says what is wrong, or that the event was not acknowledged and is safe to repeat.
//
//	request ─► slot (routes.go) ─► auth (access.go) ─► parse (like.go, batch.go) ─► publish (like.go) ─► Kafka
//	   ▲                                                                                │
//	   └── 202 {partition, offset}, or a problem ◄──────────────────────────────────────┘
//
// An event gets the time of receipt before anything else happens to it, so that a retry inside the client or a late
// delivery does not change its order.
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

// Producer is the producer role.
type Producer struct {
	options Options
	kafka   kafka.Options
	layout  schema.Layout // puts user buckets into keys
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
	buffer              *semaphore.Weighted    // slots for MaxBufferedRecords events

	client atomic.Pointer[kgo.Client] // nil unless running
	health health
}

// New checks the options and builds the producer; it does no I/O. The metrics are registered with reg.
func New(o Options, kafka kafka.Options, log *slog.Logger, reg prometheus.Registerer) (*Producer, error) {
	if err := errors.Join(o.Validate(), kafka.Validate()); err != nil {
		return nil, fmt.Errorf("producer options: %w", err)
	}
	layout, err := schema.NewLayout(1, o.UserBuckets) // keys do not depend on the number of partitions
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
	p.gateways, _ = parseNetworks(o.AuthTrustedCIDRs) // validated, like the proxies
	p.proxies, _ = parseNetworks(o.TrustedProxies)
	p.Server = httpserver.NewServer(httpserver.Config{
		Name: "producer", Key: "producer.http_addr", Addr: o.HTTPAddr, TLSCert: o.TLSCert, TLSKey: o.TLSKey,
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

// Ready returns nil while Kafka answers and requests can be authenticated. Otherwise the error says what is wrong.
func (p *Producer) Ready() error {
	if err := p.Server.Ready(); err != nil {
		return err
	}
	if err := p.keys.ready(); err != nil {
		return err
	}
	return p.kafkaReady()
}

// Run listens on HTTPAddr and serves.
func (p *Producer) Run(ctx context.Context) error {
	ln, err := p.Listen(ctx)
	if err != nil {
		return err
	}
	return p.Serve(ctx, ln)
}

// Serve serves on ln until ctx ends or serving fails. Then it stops accepting, waits at most ShutdownTimeout for the
// requests in flight and for the client to deliver its buffer, and leaves nothing running. Call Serve or Run, once.
func (p *Producer) Serve(ctx context.Context, ln net.Listener) error {
	return p.Server.Serve(ctx, ln, httpserver.Work{
		Open: p.open, Run: []func(context.Context) error{p.watchKafka, p.keys.run}, Close: p.close,
	})
}

// close closes the client after the last request, since a request in flight needs it. The server has cut off requests
// that were still being received. Nothing of them was written: an event goes to Kafka only once its request is read.
func (p *Producer) close(ctx context.Context) error {
	client := p.client.Swap(nil)
	if err := client.Flush(ctx); err != nil {
		if left := client.BufferedProduceRecords(); left > 0 {
			// Their requests were answered as not acknowledged.
			p.log.Warn("events were dropped at shutdown; none of them was reported as accepted", "events", left)
		}
	}
	client.Close()
	// Handlers that were cut off now end at once; new ones find no client.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.options.AckTimeout)
	defer cancel()
	all := int64(p.options.MaxConcurrentRequests)
	if err := p.requests.Acquire(ctx, all); err != nil {
		return fmt.Errorf("producer: requests did not end: %w", err)
	}
	p.requests.Release(all)
	return nil
}
