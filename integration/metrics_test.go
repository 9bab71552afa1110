package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"kudos/integration/stack"
	"kudos/integration/tier"
)

// What is shipped for those who watch over kudos.
const (
	rulesFile     = "../deploy/prometheus/kudos.rules.yaml"
	dashboardFile = "../deploy/grafana/kudos.json"
	operationsDoc = "../docs/operations.md"
	autoscaling   = "../deploy/kubernetes/overlays/production/autoscaling.yaml"
)

// TestWhatIsWatchedIsThere: every metric that alerts, dashboard, autoscalers and docs name is one of the running
// system, and every one of the system is in the docs.
func TestWhatIsWatchedIsThere(t *testing.T) {
	tier.Verify(t)
	t.Parallel()
	names, series := watchedSystem(t)
	docs, err := os.ReadFile(operationsDoc)
	require.NoError(t, err)
	own := regexp.MustCompile(`^(kudos_|kafka_consumergroup_)`)
	documented := map[string]bool{}
	for _, name := range regexp.MustCompile("`((kudos|kafka_consumergroup|go_sql)_[a-z0-9_]+)`").FindAllStringSubmatch(string(docs), -1) {
		documented[name[1]] = true
		if !names[name[1]] {
			t.Errorf("%s names %s, which is not there", operationsDoc, name[1])
		}
	}
	mayBe := regexp.MustCompile("`…(_[a-z_]+)`").FindAllStringSubmatch(string(docs), -1) // not always
	for name := range names {
		if slices.ContainsFunc(mayBe, func(m []string) bool { return strings.HasSuffix(name, m[1]) }) {
			continue
		}
		histogram := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if own.MatchString(name) && !documented[name] && !documented[histogram] {
			t.Errorf("%s is not in %s", name, operationsDoc)
		}
	}

	// Prometheus' own code says what is in rules and dashboard.
	check := exec.CommandContext(t.Context(), "go", "run", ".", "../"+rulesFile, "../"+dashboardFile)
	check.Dir = "promcheck"
	var stderr bytes.Buffer
	check.Stderr = &stderr
	out, err := check.Output()
	require.NoError(t, err, stderr.String())
	asked := strings.Fields(string(out))
	require.Greater(t, len(asked), 40)
	for _, name := range asked {
		ofLinux := name == "process_resident_memory_bytes" || name == "process_cpu_seconds_total"
		if !ofLinux && !names[name] {
			t.Errorf("a rule or the dashboard asks for %s, which is not there", name)
		}
	}
	for _, asked := range autoscaled(t) {
		if !series[asked] {
			t.Errorf("%s asks for %s, which is not there", autoscaling, asked)
		}
	}
}

// autoscaled are the labels of metrics by which processes are made more or fewer, as labelled writes them.
func autoscaled(t *testing.T) (asked []string) {
	file, err := os.Open(autoscaling)
	require.NoError(t, err)
	defer file.Close()
	for objects := yaml.NewDecoder(file); ; {
		var scaler struct {
			Spec struct {
				Metrics []struct {
					External struct {
						Metric struct {
							Name     string
							Selector struct {
								MatchLabels map[string]string `yaml:"matchLabels"`
							}
						}
					}
				}
			}
		}
		err := objects.Decode(&scaler)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		for _, m := range scaler.Spec.Metrics {
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

// watchedSystem runs every role, has each do its work, and returns the names of what they show, and each with each of
// its labels.
func watchedSystem(t *testing.T) (names, series map[string]bool) {
	s := newRealSystem(t)
	nobody := s.address() // a broker that is away: connections fail
	s.brokers = append(s.brokers, nobody)
	var admins []string
	admin := func() string {
		admins = append(admins, s.address())
		return admins[len(admins)-1]
	}
	s.admin = admin()
	processor := s.processor("processor", "--set", "processor.standby=true")
	s.admin = admin()
	another := s.processor("another", "--set", "processor.standby=true") // which the copies are of
	s.admin = admin()
	ranker := s.ranker("ranker", "--set", "ranker.idle_after=1s", "--set", "ranker.allowed_lateness=0s")
	r := s.reader("reader")
	admins = append(admins, strings.TrimPrefix(r.admin, "http://"))
	api := s.address()
	producer := s.role("producer", "producer", t.TempDir(), "--set", "producer.http_addr="+api, "--set", "admin.addr="+admin())
	archive := s.role("archive", "archive", t.TempDir(), "--set", "archive.dir="+t.TempDir(), "--set", "admin.addr="+admin())
	for _, p := range []*stack.Server{processor, another, ranker, r.Server, producer, archive} {
		require.NoError(t, p.Start(t.Context()))
	}
	for _, at := range admins {
		waitFor(t, time.Minute, at+" to be ready", func() bool { return answers(t, "http://"+at+"/readyz") })
	}
	like := mustAsk[place](t, http.MethodPut, fmt.Sprintf("http://%s/v1/posts/1/likes/2", api), nil, http.StatusAccepted)
	mustAsk[likes](t, http.MethodGet, fmt.Sprintf("%s/v1/posts/1/likes?min_offset=%d", r.base, like.Offset), nil, http.StatusOK)
	_, err := ask[any](t.Context(), http.MethodPut, fmt.Sprintf("http://%s/v1/posts/1/likes/nobody", api), nil, http.StatusBadRequest)
	require.NoError(t, err)

	waitFor(t, time.Minute, "the like to be in MySQL, a ranking to be published, and standby copies to follow", func() bool {
		names, series = map[string]bool{}, map[string]bool{}
		rankings := 0.0
		for _, at := range admins {
			for name, f := range scrape(t, at) {
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

func scrape(t testing.TB, admin string) map[string]*dto.MetricFamily {
	resp, err := http.Get("http://" + admin + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	require.NoError(t, err)
	return families
}

// samples are the names by which a family can be asked for.
func samples(name string, f *dto.MetricFamily) map[string]bool {
	if f.GetType() != dto.MetricType_HISTOGRAM {
		return map[string]bool{name: true}
	}
	return map[string]bool{name + "_bucket": true, name + "_sum": true, name + "_count": true, name: true}
}

// TestEveryAlertHasARunbook: its heading is where the alert says, and there is none without an
// alert.
func TestEveryAlertHasARunbook(t *testing.T) {
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	require.NoError(t, yaml.Unmarshal(text, &rules))
	docs, err := os.ReadFile(operationsDoc)
	require.NoError(t, err)
	var alerts, headings []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Alert)
			require.Contains(t, []string{"page", "ticket"}, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			require.Equal(t, "docs/operations.md#"+strings.ToLower(r.Alert), r.Annotations["runbook_url"])
		}
	}
	for _, h := range regexp.MustCompile(`(?m)^### (Kudos\w+)$`).FindAllStringSubmatch(string(docs), -1) {
		headings = append(headings, h[1])
	}
	require.NotEmpty(t, alerts)
	slices.Sort(alerts)
	slices.Sort(headings)
	require.Equal(t, alerts, headings)
}
