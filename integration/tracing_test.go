package integration

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"kudos/integration/tier"
)

// traceCollector takes spans as an OpenTelemetry collector does.
type traceCollector struct {
	*httptest.Server
	mu struct {
		sync.Mutex
		spans []*tracepb.Span
	}
}

func newTraceCollector(t *testing.T) *traceCollector {
	c := &traceCollector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &req) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range req.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				c.mu.spans = append(c.mu.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// named returns the spans by name; of HTTP requests the name is their method.
func (c *traceCollector) named() map[string][]*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	spans := map[string][]*tracepb.Span{}
	for _, s := range c.mu.spans {
		name, _, _ := strings.Cut(s.Name, " /")
		spans[name] = append(spans[name], s)
	}
	return spans
}

// TestOneLikeIsTraced from the request to MySQL and the readers; others leave nothing.
func TestOneLikeIsTraced(t *testing.T) {
	tier.Test(t)
	c := newTraceCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	f := newFollowed(t)
	for user := range uint64(20) {
		f.like(t, 1, 100+user)
	}
	const traceID, caller = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, fmt.Sprintf("%s/v1/posts/1/likes/2", f.producer), nil)
	require.NoError(t, err)
	req.Header.Set("Traceparent", "00-"+traceID+"-"+caller+"-01")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusAccepted, resp.StatusCode)

	var spans map[string][]*tracepb.Span
	waitFor(t, time.Minute, "all steps of the like", func() bool {
		spans = c.named()
		return len(spans["fold"]) > 0 && len(spans["apply"]) > 0 && len(spans["reader"]) == len(f.readers) && len(spans["likes publish"]) > 0 && len(spans["PUT"]) > 0
	})
	parent := caller
	for _, step := range []string{"PUT", "likes publish", "fold", "apply"} {
		require.Len(t, spans[step], 1, step)
		s := spans[step][0]
		require.Equal(t, traceID, hex.EncodeToString(s.TraceId), step)
		require.Equal(t, parent, hex.EncodeToString(s.ParentSpanId), step)
		require.GreaterOrEqual(t, s.EndTimeUnixNano, s.StartTimeUnixNano, step)
		parent = hex.EncodeToString(s.SpanId)
	}
	fold := spans["fold"][0].SpanId
	require.True(t, slices.ContainsFunc(spans["reader"], func(s *tracepb.Span) bool { return slices.Equal(s.ParentSpanId, fold) }))
	require.Len(t, spans, 5, "others are not followed")
}
