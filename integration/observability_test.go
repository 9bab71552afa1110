package integration

import (
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"gopkg.in/yaml.v3"

	"kudos/dev/testkit/apikit"
	"kudos/integration/deployed"
	"kudos/integration/stack"
	"kudos/integration/tier"
)

// The files for monitoring kudos.
const (
	rulesFile     = "../deploy/prometheus/kudos.rules.yaml"
	dashboardFile = "../deploy/grafana/kudos.json"
	operationsDoc = "../docs/operations.md"
	autoscaling   = "deploy/kubernetes/overlays/production"
)

// TestWatchedFilesExist: alerts, dashboard, autoscalers and docs name metrics that exist, and the docs name all.
func TestWatchedFilesExist(t *testing.T) {
	names, series := watchedSystem(t)
	docs := readText(t, operationsDoc)
	own := regexp.MustCompile(`^(kudos_|kafka_consumergroup_)`)
	documented := map[string]bool{}
	inDocs := regexp.MustCompile("`((kudos|kafka_consumergroup|go_sql)_[a-z0-9_]+)`")
	for _, name := range inDocs.FindAllStringSubmatch(docs, -1) {
		documented[name[1]] = true
		assert.True(t, names[name[1]], "%s documents %s, which does not exist", operationsDoc, name[1])
	}
	mayBe := regexp.MustCompile("`…(_[a-z_]+)`").FindAllStringSubmatch(docs, -1) // not always present
	for name := range names {
		if slices.ContainsFunc(mayBe, func(m []string) bool { return strings.HasSuffix(name, m[1]) }) {
			continue
		}
		histogram := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if own.MatchString(name) && !documented[name] && !documented[histogram] {
			t.Errorf("%s is not documented in %s", name, operationsDoc)
		}
	}

	// Prometheus' own parser extracts the metrics from rules and dashboard.
	check := exec.CommandContext(t.Context(), "go", "run", ".", "../"+rulesFile, "../"+dashboardFile)
	check.Dir, check.Stderr = "promcheck", t.Output()
	out, err := check.Output()
	require.NoError(t, err, "promcheck")
	asked := strings.Fields(string(out))
	require.Greater(t, len(asked), 40)
	for _, name := range asked {
		ofLinux := name == "process_resident_memory_bytes" || name == "process_cpu_seconds_total"
		assert.True(t, ofLinux || names[name], "a rule or the dashboard queries %s, which does not exist", name)
	}
	for _, asked := range autoscaled(t) {
		assert.True(t, series[asked], "%s queries %s, which does not exist", autoscaling, asked)
	}
}

// autoscaled returns the metrics of the autoscalers with their labels, formatted by labelled.
func autoscaled(t *testing.T) (asked []string) {
	for _, o := range deployed.Read[struct {
		Spec struct {
			Metrics []struct {
				External struct {
					Metric struct {
						Name     string
						Selector struct{ MatchLabels map[string]string }
					}
				}
			}
		}
	}](t, autoscaling) {
		for _, m := range o.Spec.Metrics {
			for label, value := range m.External.Metric.Selector.MatchLabels {
				asked = append(asked, labelled(m.External.Metric.Name, label, value))
			}
		}
	}
	require.NotEmpty(t, asked)
	return asked
}

func labelled(metric, label, value string) string {
	return fmt.Sprintf("%s{%s=%q}", metric, label, value)
}

// watchedSystem runs every role, has each do its work, and returns their metrics' names, and the names with each label.
func watchedSystem(t *testing.T) (names, series map[string]bool) {
	s := verified(t)
	s.brokers = append(s.brokers, stack.ReserveForTest(t)) // an unavailable one: connections fail
	api, r := stack.ReserveForTest(t), s.reader("reader")
	roles := []*process{
		s.processor("processor", "--set", "processor.standby=true"),
		s.processor("another", "--set", "processor.standby=true"), // the source of the standby replicas
		s.ranker("ranker", "--set", "ranker.idle_after=1s", "--set", "ranker.allowed_lateness=0s"),
		r.process,
		s.role("producer", "producer", "--set", "producer.http_addr="+api),
		s.role("archive", "archive", "--set", "archive.dir="+t.TempDir()),
		s.role("bridge", "bridge", "--set", "bridge.topic="+sourceTopic),
		s.role("notify", "notify", "--set", "notify.url="+deaf(t), "--set", "notify.rankings=global/1h"),
	}
	s.createSource()
	startAll(roles...)
	get[likes](t, "%s/v1/posts/1/likes?min_offset=%d", r.base, putLike(t, "http://"+api, 1, 2).Offset)
	_, err := ask[any](t.Context(), http.MethodPut, fmt.Sprintf("http://%s/v1/posts/1/likes/nobody", api), nil,
		http.StatusBadRequest)
	require.NoError(t, err)

	waitFor(t, time.Minute, "the like to be in MySQL, a ranking to be published, and standby replicas to follow",
		func() bool {
			names, series = map[string]bool{}, map[string]bool{}
			rankings := 0.0
			for _, p := range roles {
				for name, f := range p.metrics() {
					maps.Copy(names, samples(name, f))
					for _, m := range f.GetMetric() {
						for _, l := range m.GetLabel() {
							series[labelled(name, l.GetName(), l.GetValue())] = true
						}
					}
					if name == "kudos_rankings_published_total" {
						rankings = f.GetMetric()[0].GetCounter().GetValue()
					}
				}
			}
			return names["kudos_mysql_commit_seconds"] && rankings > 0 && names["kudos_standby_behind_records"]
		})
	return names, series
}

// samples returns the names by which a metric family can be queried.
func samples(name string, f *dto.MetricFamily) map[string]bool {
	if f.GetType() != dto.MetricType_HISTOGRAM {
		return map[string]bool{name: true}
	}
	return map[string]bool{name + "_bucket": true, name + "_sum": true, name + "_count": true, name: true}
}

// TestEveryAlertHasARunbook: every alert links to a heading, and every runbook belongs to an alert.
func TestEveryAlertHasARunbook(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert               string
				Labels, Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(readText(t, rulesFile)), &rules))
	var alerts, headings []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Alert)
			require.Contains(t, []string{"page", "ticket"}, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.Equal(t, "https://github.com/OWNER/kudos/blob/HEAD/docs/operations.md#"+strings.ToLower(r.Alert),
				r.Annotations["runbook_url"], "absolute: it is followed from a message")
		}
	}
	heading := regexp.MustCompile(`(?m)^### (Kudos\w+)$`)
	for _, h := range heading.FindAllStringSubmatch(readText(t, operationsDoc), -1) {
		headings = append(headings, h[1])
	}
	require.NotEmpty(t, alerts)
	require.ElementsMatch(t, alerts, headings)
}

// traceCollector receives spans like an OpenTelemetry collector.
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

// named returns the spans by name; HTTP requests are named after their method.
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

// TestOneLikeIsTraced from the request to MySQL and the readers; unsampled likes leave no spans.
func TestOneLikeIsTraced(t *testing.T) {
	tier.Test(t)
	c := newTraceCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	f := newFollowed(t)
	for user := range uint64(20) {
		putLike(t, f.producer, 1, 100+user)
	}
	const traceID, caller = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	apikit.MustSend(t, nil, http.MethodPut, f.producer+"/v1/posts/1/likes/2", "",
		"Traceparent", "00-"+traceID+"-"+caller+"-01").Require(http.StatusAccepted)

	var spans map[string][]*tracepb.Span
	waitFor(t, time.Minute, "the spans of all steps", func() bool {
		spans = c.named()
		return len(spans["fold"]) > 0 && len(spans["apply"]) > 0 && len(spans["reader"]) == len(f.readers) &&
			len(spans["reactions"]) == len(f.readers) && len(spans["likes publish"]) > 0 && len(spans["PUT"]) > 0
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
	for _, lane := range []string{"reader", "reactions"} {
		require.True(t, slices.ContainsFunc(spans[lane], func(s *tracepb.Span) bool {
			return slices.Equal(s.ParentSpanId, fold)
		}), lane)
	}
	require.Len(t, spans, 6, "other likes are not traced")
}
