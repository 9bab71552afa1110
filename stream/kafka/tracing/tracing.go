// Package tracing traces single likes with OpenTelemetry, from the request through Kafka to whatever shows them. A
// trace starts in the HTTP server of the producer, or with a writer's own traceparent header. A sampled like is traced
// to the end; the others cost nothing: their records have no header.
//
// Batches have no spans. The span of a step lasts as long as the batch that the like was in.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kotel"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
)

const sampled = 0.0001 // of traces started here, unless OTEL_TRACES_SAMPLER is set: 10 of 100,000 likes a second

var propagator = propagation.TraceContext{}

// Wanted reports whether the environment asks for the export of traces.
func Wanted() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return setting("ENDPOINT") != "" || os.Getenv("OTEL_TRACES_EXPORTER") != ""
}

// Setup exports this process's traces under the service name, if Wanted. stop sends the rest, until its context ends.
func Setup(ctx context.Context, service, version string) (stop func(context.Context) error, err error) {
	if !Wanted() {
		return func(context.Context) error { return nil }, nil
	}
	if err := checkEnvironment(); err != nil {
		return nil, err
	}
	to, err := newCollector()
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	exporter, err := otlptrace.New(ctx, to)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	// The environment takes precedence.
	about, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName(service), semconv.ServiceVersion(version)),
		resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	opts := []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)}
	if os.Getenv("OTEL_TRACES_SAMPLER") == "" {
		opts = append(opts, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(sampled))))
	}
	provider := sdktrace.NewTracerProvider(opts...)
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagator)
	return provider.Shutdown, nil
}

// checkEnvironment rejects settings that would be ignored.
func checkEnvironment() error {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol := os.Getenv(name); protocol != "" && protocol != "http/protobuf" {
			return fmt.Errorf("tracing: %s is %q; only http/protobuf is supported", name, protocol)
		}
	}
	if exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter != "" && exporter != "otlp" {
		return fmt.Errorf("tracing: OTEL_TRACES_EXPORTER is %q; otlp and none are supported", exporter)
	}
	return nil
}

// Handler starts a span for each request, or continues its caller's trace.
func Handler(h http.Handler, name string) http.Handler {
	if !Wanted() {
		return h
	}
	return otelhttp.NewHandler(h, name, otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
		return r.Method + " " + r.Pattern
	}))
}

type producing struct{ *kotel.Tracer } // adds the trace to sampled records; kotel's own would add a header to all

// Hooks returns the hooks of the client that publishes the events of requests.
func Hooks() []kgo.Hook {
	if !Wanted() {
		return nil
	}
	return []kgo.Hook{producing{kotel.NewTracer(kotel.TracerPropagator(propagator))}}
}

func isSampled(rec *kgo.Record) bool {
	return rec.Context != nil && trace.SpanContextFromContext(rec.Context).IsSampled()
}

func (p producing) OnProduceRecordBuffered(rec *kgo.Record) {
	if isSampled(rec) {
		p.Tracer.OnProduceRecordBuffered(rec)
	}
}

func (p producing) OnProduceRecordUnbuffered(rec *kgo.Record, err error) {
	if isSampled(rec) {
		p.Tracer.OnProduceRecordUnbuffered(rec, err)
	}
}

// Detach returns a context with the trace of ctx and nothing else of it.
func Detach(ctx context.Context) context.Context {
	span := trace.SpanFromContext(ctx)
	if !span.SpanContext().IsSampled() {
		return context.Background()
	}
	return trace.ContextWithSpan(context.Background(), span)
}

// Of returns the trace of a record, if it is sampled.
func Of(rec *kgo.Record) (trace.SpanContext, bool) {
	if len(rec.Headers) == 0 {
		return trace.SpanContext{}, false
	}
	sc := trace.SpanContextFromContext(propagator.Extract(context.Background(), kotel.NewRecordCarrier(rec)))
	return sc, sc.IsSampled()
}

// GiveTo adds a trace to the headers of a record.
func GiveTo(rec *kgo.Record, sc trace.SpanContext) {
	propagator.Inject(trace.ContextWithSpanContext(context.Background(), sc), kotel.NewRecordCarrier(rec))
}

// Begin starts the span of a step that processes a record.
func Begin(parent trace.SpanContext, name string, rec *kgo.Record, began time.Time) trace.Span {
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), parent)
	_, span := otel.Tracer("kudos").Start(ctx, name, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithTimestamp(began), trace.WithAttributes(
			semconv.MessagingSystemKafka, semconv.MessagingDestinationName(rec.Topic),
			semconv.MessagingDestinationPartitionID(fmt.Sprint(rec.Partition)),
			attribute.Int64("messaging.kafka.offset", rec.Offset)))
	return span
}

const PerBatch = 100 // bounds the traced likes of a batch: writers decide which are sampled, and may sample all

// Follow starts a span for each record that is traced.
func Follow(records []*kgo.Record, step string, began time.Time) (spans []trace.Span) {
	for _, rec := range records {
		if sc, ok := Of(rec); ok && len(spans) < PerBatch {
			spans = append(spans, Begin(sc, step, rec, began))
		}
	}
	return spans
}

// End ends spans, with an error status unless err is nil.
func End(spans []trace.Span, err error) {
	for _, span := range spans {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}
