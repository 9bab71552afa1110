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
// An event gets the time of receipt first of all, so that a retry in the client or a late delivery keeps its order.
package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/httpserver"
	"kudos/schema"
	"kudos/stream/kafka"
	"kudos/stream/kafka/tracing"
)

// errNotRunning means that nothing of the request was written.
var errNotRunning = errors.New("the producer is not running")

// Producer is the producer role.
type Producer struct {
	options Options
	kafka   kafka.Options
	layout  schema.Layout // puts user buckets into keys
	log     *slog.Logger
	metrics *metrics
	*httpserver.Server

	keys              *keyring // nil unless tokens are verified
	algorithms        []jose.SignatureAlgorithm
	gateways, proxies httpserver.Networks
	addressRate       *limiter[netip.Addr] // of requests
	userRate          *limiter[uint64]     // of events

	requests, batches   *httpserver.Slots      // of requests, and of batches among them
	bodies, batchBodies *httpserver.BodyReader // read before a slot is taken
	buffer              *httpserver.Slots      // of MaxBufferedRecords events

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
		bodies:      httpserver.NewBodyReader(o.MaxBodyBytes, o.MaxConcurrentRequests),
		batchBodies: httpserver.NewBodyReader(o.MaxBatchBytes, o.MaxConcurrentBatches),
	}
	p.requests = httpserver.NewSlots(o.MaxConcurrentRequests, "concurrent requests",
		"producer.max_concurrent_requests", "requests", p.metrics.refused)
	p.batches = httpserver.NewSlots(o.MaxConcurrentBatches, "concurrent batches",
		"producer.max_concurrent_batches", "batches", p.metrics.refused)
	p.buffer = httpserver.NewSlots(o.MaxBufferedRecords, "events that wait for Kafka",
		"producer.max_buffered_records", "events", p.metrics.refused)
	if o.Auth == AuthJWT {
		p.keys = newKeyring(o, log)
	}
	for _, algorithm := range o.JWTAlgorithms {
		p.algorithms = append(p.algorithms, jose.SignatureAlgorithm(algorithm))
	}
	p.gateways, _ = httpserver.ParseNetworks(o.AuthTrustedCIDRs) // validated, like the proxies
	p.proxies, _ = httpserver.ParseNetworks(o.TrustedProxies)
	p.Server = httpserver.NewServer(httpserver.Config{
		Name: "producer", Key: "producer.http_addr", Addr: o.HTTPAddr, TLSCert: o.TLSCert, TLSKey: o.TLSKey,
		HTTP: &http.Server{Handler: tracing.Handler(p.routes(), "producer"), MaxHeaderBytes: o.MaxHeaderBytes,
			ReadHeaderTimeout: o.ReadHeaderTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
			IdleTimeout: o.IdleTimeout},
		ShutdownTimeout: o.ShutdownTimeout,
		Work: httpserver.Work{Open: p.open, Run: []func(context.Context) error{p.watchKafka, p.keys.run},
			Close: p.close},
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

// open creates the client, which connects on first use.
func (p *Producer) open() error {
	client, err := p.kafka.NewClient(p.log,
		// Kafka's default, spelled out: murmur2 of the key. A post's writers must share its partition (schema.Layout).
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		// An acknowledged event is on every in-sync replica. Retries write it once (idempotence is kgo's default).
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// Below the topic's limit, which includes the overhead of a batch.
		kgo.ProducerBatchMaxBytes(schema.LikesMaxMessageBytes-1024),
		// p.buffer rejects first. One more: kgo counts a record until its promise, which frees a slot, has returned.
		kgo.MaxBufferedRecords(p.options.MaxBufferedRecords+1),
		kgo.ProducerLinger(p.options.Linger),
		// Find a moved leader at once: kgo's default of 5 s would be half of a request's wait.
		kgo.MetadataMinAge(250*time.Millisecond),
		// Below AckTimeout, so that a response usually has the reason. A record in flight is never canceled: it may
		// arrive late, and its event time keeps its order. At least kgo's minimum.
		kgo.RecordDeliveryTimeout(max(time.Second, p.options.AckTimeout*3/4)),
		kgo.ProduceRequestTimeout(max(100*time.Millisecond, p.options.AckTimeout/2)),
		kgo.WithHooks(tracing.Hooks()...))
	if err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	p.client.Store(client)
	return nil
}

func (p *Producer) bufferedRecords() float64 {
	if client := p.client.Load(); client != nil {
		return float64(client.BufferedProduceRecords())
	}
	return 0
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

// health is when Kafka last answered, and the error since then.
type health struct {
	mu struct {
		sync.Mutex
		at  time.Time
		err error
	}
}

// answered records a result. A missing topic makes the producer unready at once, other errors only after ReadyTimeout.
func (h *health) answered(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.err = err
	switch {
	case err == nil:
		h.mu.at = time.Now()
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		h.mu.at = time.Time{}
	}
}

func (p *Producer) kafkaReady() error {
	if p.client.Load() == nil {
		return fmt.Errorf("producer: %w", errNotRunning)
	}
	p.health.mu.Lock()
	defer p.health.mu.Unlock()
	at, err := p.health.mu.at, p.health.mu.err
	const topic = schema.TopicLikes
	switch {
	case !at.IsZero() && time.Since(at) < p.options.ReadyTimeout:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("producer: the topic %s does not exist; create it with `kudos topics apply`", topic)
	case err != nil:
		return fmt.Errorf("producer: Kafka at %v returned no metadata for topic %s: %w", p.kafka.Brokers, topic, err)
	}
	return fmt.Errorf("producer: Kafka at %v has not answered yet", p.kafka.Brokers)
}

// watchKafka asks for the likes topic three times per ReadyTimeout. It logs when Kafka stops and resumes answering.
func (p *Producer) watchKafka(ctx context.Context) error {
	every := p.options.ReadyTimeout / 3
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	away := false
	for {
		if client := p.client.Load(); client != nil {
			bounded, cancel := context.WithTimeout(ctx, every)
			_, err := kafka.LookUpTopics(bounded, client, schema.TopicLikes)
			cancel()
			p.health.answered(err)
		}
		if err := p.kafkaReady(); ctx.Err() == nil && (err != nil) != away {
			away = err != nil
			if away {
				p.log.Warn("likes cannot be accepted", "error", err)
			} else {
				p.log.Info("Kafka answers again; accepting likes")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
