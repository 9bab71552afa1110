// Package tracing follows single likes, by OpenTelemetry, from the request through Kafka to whatever shows them. Where
// it begins is the HTTP server of the producer, or a writer's own traceparent header; what is sampled there is followed
// to the end, and what is not costs nothing: its records have no header.
//
// Batches have no spans of their own. A step's span is as long as the batch that the like was in.
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

// sampled is how many of the traces that begin here are kept, if OTEL_TRACES_SAMPLER says
// nothing: of 100,000 likes a second, ten.
const sampled = 0.0001

var propagator = propagation.TraceContext{}

// Wanted tells from the environment whether traces are to be exported.
func Wanted() bool {
	set := func(name string) bool { return os.Getenv(name) != "" }
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return set("OTEL_EXPORTER_OTLP_ENDPOINT") || set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") ||
		set("OTEL_TRACES_EXPORTER")
}

// Setup exports the traces of this process, as a service of that name, if that is Wanted. stop
// sends what is left, until its context ends.
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
	// What the environment says goes before.
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

// checkEnvironment refuses what would be passed over.
func checkEnvironment() error {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol := os.Getenv(name); protocol != "" && protocol != "http/protobuf" {
			return fmt.Errorf("tracing: %s is %q; only http/protobuf is there", name, protocol)
		}
	}
	if exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter != "" && exporter != "otlp" {
		return fmt.Errorf("tracing: OTEL_TRACES_EXPORTER is %q; otlp and none are there", exporter)
	}
	return nil
}

// Handler has each request begin a span, or go on with its caller's.
func Handler(h http.Handler, name string) http.Handler {
	if !Wanted() {
		return h
	}
	return otelhttp.NewHandler(h, name, otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
		return r.Method + " " + r.Pattern
	}))
}

// producing has records of requests that are sampled take their trace along. kotel's own tracer
// would give all records a header.
type producing struct{ *kotel.Tracer }

// Hooks are for the client that publishes what requests bring.
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

// Detach returns a context that has the trace of ctx and nothing else of it.
func Detach(ctx context.Context) context.Context {
	span := trace.SpanFromContext(ctx)
	if !span.SpanContext().IsSampled() {
		return context.Background()
	}
	return trace.ContextWithSpan(context.Background(), span)
}

// Of returns the trace that a record takes along, if it is one that is sampled.
func Of(rec *kgo.Record) (trace.SpanContext, bool) {
	if len(rec.Headers) == 0 {
		return trace.SpanContext{}, false
	}
	ctx := propagator.Extract(context.Background(), kotel.NewRecordCarrier(rec))
	sc := trace.SpanContextFromContext(ctx)
	return sc, sc.IsSampled()
}

// GiveTo has a record take a trace along.
func GiveTo(rec *kgo.Record, sc trace.SpanContext) {
	propagator.Inject(trace.ContextWithSpanContext(context.Background(), sc), kotel.NewRecordCarrier(rec))
}

// Begin begins a step that works a record off.
func Begin(parent trace.SpanContext, name string, rec *kgo.Record, began time.Time) trace.Span {
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), parent)
	_, span := otel.Tracer("kudos").Start(ctx, name, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithTimestamp(began), trace.WithAttributes(
			semconv.MessagingSystemKafka, semconv.MessagingDestinationName(rec.Topic),
			semconv.MessagingDestinationPartitionID(fmt.Sprint(rec.Partition)),
			attribute.Int64("messaging.kafka.offset", rec.Offset),
		))
	return span
}

// PerBatch bounds how many likes of a batch are followed: whoever writes events decides which are, and may want all.
const PerBatch = 100

// Follow begins a step of each record that is followed.
func Follow(records []*kgo.Record, step string, began time.Time) (spans []trace.Span) {
	for _, rec := range records {
		if sc, ok := Of(rec); ok && len(spans) < PerBatch {
			spans = append(spans, Begin(sc, step, rec, began))
		}
	}
	return spans
}

// End ends steps, well or by an error.
func End(spans []trace.Span, err error) {
	for _, span := range spans {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}
