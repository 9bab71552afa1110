package tracing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"
)

// followedRecord is one whose writer wants it to be followed, or not.
func followedRecord(flags trace.TraceFlags) *kgo.Record {
	rec := &kgo.Record{Topic: "likes"}
	GiveTo(rec, trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags}))
	return rec
}

// TestWritersDoNotDecideHowMuchIsFollowed: whatever headers they send, a batch has so many spans at most.
func TestWritersDoNotDecideHowMuchIsFollowed(t *testing.T) {
	records := []*kgo.Record{{Topic: "likes"}, followedRecord(0), {Headers: []kgo.RecordHeader{{Key: "traceparent", Value: []byte("nonsense")}}}}
	require.Empty(t, Follow(records, "fold", time.Now()), "nobody asked for these")
	for range PerBatch + 1 {
		records = append(records, followedRecord(trace.FlagsSampled))
	}
	spans := Follow(records, "fold", time.Now())
	require.Len(t, spans, PerBatch)
	End(spans, nil)
}

// TestEnvironment: what the variables of the standard ask for is done, or refused by name; nothing is passed over.
func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		name   string
		env    map[string]string
		wanted bool
		err    string
	}{
		{"nothing", nil, false, ""},
		{"endpoint", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, true, ""},
		{"endpoint of traces", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}, true, ""},
		{"exporter", map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		{"no traces", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}, false, ""},
		{"disabled", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "TRUE"}, false, ""},
		{"another exporter", map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, true, `OTEL_TRACES_EXPORTER is "zipkin"`},
		{"another protocol", map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, true, `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
				t.Setenv(name, c.env[name])
			}
			require.Equal(t, c.wanted, Wanted())
			stop, err := Setup(t.Context(), "kudos-test", "v0")
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.NoError(t, stop(t.Context()))
		})
	}
}
