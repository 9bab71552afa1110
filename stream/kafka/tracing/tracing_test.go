package tracing

import (
	"compress/gzip"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

func followedRecord(flags trace.TraceFlags) *kgo.Record {
	rec := &kgo.Record{Topic: "likes"}
	GiveTo(rec, trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
		TraceFlags: flags}))
	return rec
}

// Whatever headers writers send, the spans of a batch are bounded.
func TestFollowedSetDoesNotDependOnWriters(t *testing.T) {
	records := []*kgo.Record{{Topic: "likes"}, followedRecord(0),
		{Headers: []kgo.RecordHeader{{Key: "traceparent", Value: []byte("nonsense")}}}}
	require.Empty(t, Follow(records, "fold", time.Now()), "none of these is sampled")
	for range PerBatch + 1 {
		records = append(records, followedRecord(trace.FlagsSampled))
	}
	spans := Follow(records, "fold", time.Now())
	require.Len(t, spans, PerBatch)
	End(spans, nil)
}

// The standard variables are obeyed, or rejected by name; none is ignored.
func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		name   string
		env    map[string]string
		wanted bool
		err    string
	}{
		{"nothing", nil, false, ""},
		{"endpoint", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, true, ""},
		{"traces endpoint", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"},
			true, ""},
		{"exporter", map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true, ""},
		{"no traces", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
			"OTEL_TRACES_EXPORTER": "none"}, false, ""},
		{"disabled", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
			"OTEL_SDK_DISABLED": "TRUE"}, false, ""},
		{"another exporter", map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, true,
			`OTEL_TRACES_EXPORTER is "zipkin"`},
		{"another protocol", map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
			true, `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
				"OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
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

type received struct {
	path   string
	header http.Header
	names  []string
}

// collect answers requests with these statuses in turn, and then always with the last one.
func collect(t *testing.T, statuses ...int) (http.Handler, *[]received) {
	t.Helper()
	var got []received
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if in, err = gzip.NewReader(r.Body); err != nil {
				t.Error(err)
				return
			}
		}
		body, err := io.ReadAll(in)
		var request tracepb.TracesData
		if err != nil || proto.Unmarshal(body, &request) != nil {
			t.Errorf("%v: %q", err, body)
			return
		}
		one := received{path: r.URL.Path, header: r.Header}
		for _, resource := range request.ResourceSpans {
			one.names = append(one.names, resource.ScopeSpans[0].Spans[0].Name)
		}
		got = append(got, one)
		w.WriteHeader(statuses[min(len(got), len(statuses))-1])
		_, _ = io.WriteString(w, map[bool]string{true: "because"}[len(statuses) > 1 || statuses[0] != http.StatusOK])
	}), &got
}

// upload sends one span, configured by the environment.
func upload(t *testing.T) error {
	t.Helper()
	c, err := newCollector()
	require.NoError(t, err)
	require.NoError(t, c.Start(t.Context()))
	err = c.UploadTraces(t.Context(),
		[]*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: "fold"}}}}}})
	require.NoError(t, c.Stop(t.Context()))
	return err
}

func clearSettings(t *testing.T) {
	for _, name := range []string{"ENDPOINT", "HEADERS", "COMPRESSION", "TIMEOUT", "CERTIFICATE", "CLIENT_CERTIFICATE",
		"CLIENT_KEY"} {
		t.Setenv("OTEL_EXPORTER_OTLP_"+name, "")
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_"+name, "")
	}
}

func TestCollectorReadsTheEnvironment(t *testing.T) {
	handler, got := collect(t, http.StatusOK)
	server := httptest.NewTLSServer(handler)
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(ca, text, 0o600))

	clearSettings(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL+"/base/")
	require.Error(t, upload(t), "its certificate is not trusted")
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", ca)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret, tenant = likes")
	require.NoError(t, upload(t))
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", server.URL+"/exactly/here")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "tenant=traces")
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60000")
	require.NoError(t, upload(t))

	require.Len(t, *got, 2)
	first, second := (*got)[0], (*got)[1]
	require.Equal(t, "/base/v1/traces", first.path)
	require.Equal(t, "Bearer secret", first.header.Get("Authorization"))
	require.Equal(t, "likes", first.header.Get("Tenant"))
	require.Equal(t, "application/x-protobuf", first.header.Get("Content-Type"))
	require.Equal(t, []string{"fold"}, first.names)
	require.Equal(t, "/exactly/here", second.path)
	require.Equal(t, "traces", second.header.Get("Tenant"))
	require.Empty(t, second.header.Get("Authorization"), "traces have their own headers")
	require.Equal(t, "gzip", second.header.Get("Content-Encoding"))
	require.Equal(t, []string{"fold"}, second.names)
}

func TestCollectorRejectsABadEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"ENDPOINT": "localhost:4318", "HEADERS": "secret", "COMPRESSION": "zstd", "TIMEOUT": "10s",
		"CERTIFICATE": "no-such-file", "CLIENT_CERTIFICATE": "no-such-file",
	} {
		t.Run(name, func(t *testing.T) {
			clearSettings(t)
			t.Setenv("OTEL_EXPORTER_OTLP_"+name, value)
			_, err := newCollector()
			require.ErrorContains(t, err, "OTEL_EXPORTER_OTLP_"+
				map[bool]string{true: "CERTIFICATE", false: name}[name == "CLIENT_CERTIFICATE"])
		})
	}
}

func TestCollectorRetriesWhileOverloaded(t *testing.T) {
	for _, c := range []struct {
		name        string
		statuses    []int
		requests    int
		err, warned string
	}{
		{"overloaded once", []int{http.StatusServiceUnavailable, http.StatusOK}, 2, "", "because"},
		{"rejected", []int{http.StatusForbidden}, 1, `403 Forbidden: "because"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			handler, got := collect(t, c.statuses...)
			server := httptest.NewServer(handler)
			defer server.Close()
			clearSettings(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
			var warned error
			otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { warned = err }))
			err := upload(t)
			require.Len(t, *got, c.requests)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.NoError(t, warned)
				return
			}
			require.NoError(t, err)
			require.ErrorContains(t, warned, c.warned)
		})
	}
}

func TestUnavailableCollectorDelaysNobody(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	clearSettings(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	require.ErrorContains(t, upload(t), "refused")
}
