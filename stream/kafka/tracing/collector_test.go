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

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// received is a request that a collector has got.
type received struct {
	path   string
	header http.Header
	names  []string
}

// collect answers requests with one status after the other, the last one from then on.
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

// upload sends one span as the environment says.
func upload(t *testing.T) error {
	t.Helper()
	c, err := newCollector()
	require.NoError(t, err)
	require.NoError(t, c.Start(t.Context()))
	err = c.UploadTraces(t.Context(), []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{Name: "fold"}}}}}})
	require.NoError(t, c.Stop(t.Context()))
	return err
}

// clearSettings has tests begin with an empty environment.
func clearSettings(t *testing.T) {
	for _, name := range []string{"ENDPOINT", "HEADERS", "COMPRESSION", "TIMEOUT", "CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"} {
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
	require.Error(t, upload(t), "its certificate is not to be trusted")
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
	require.Empty(t, second.header.Get("Authorization"), "traces have headers of their own")
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
			require.ErrorContains(t, err, "OTEL_EXPORTER_OTLP_"+map[bool]string{true: "CERTIFICATE", false: name}[name == "CLIENT_CERTIFICATE"])
		})
	}
}

func TestCollectorRetriesWhileOverloaded(t *testing.T) {
	for _, c := range []struct {
		name     string
		statuses []int
		requests int
		err      string
		warned   string
	}{
		{"overloaded once", []int{http.StatusServiceUnavailable, http.StatusOK}, 2, "", "because"},
		{"refused", []int{http.StatusForbidden}, 1, `403 Forbidden: "because"`, ""},
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

func TestCollectorThatIsAwayDelaysNobody(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	clearSettings(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	require.ErrorContains(t, upload(t), "refused")
}
