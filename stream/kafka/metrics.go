package kafka

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"
)

// clientMetrics registers kprom's metrics once for all clients, however short-lived; kprom itself would for each.
type clientMetrics struct {
	*kprom.Metrics
	once sync.Once
}

// NewClientMetrics returns a hook (Options.Hooks) that counts the clients' traffic by broker and times their requests.
func NewClientMetrics(reg prometheus.Registerer) kgo.Hook {
	return &clientMetrics{Metrics: kprom.NewMetrics("kudos",
		kprom.Subsystem("kafka"),
		kprom.Registerer(countersOnly{reg}),
		kprom.FetchAndProduceDetail(kprom.ByTopic, kprom.Records, kprom.CompressedBytes),
		kprom.HistogramsFromOpts(
			// 1 ms to 16 s
			kprom.HistogramOpts{Enable: kprom.RequestDurationE2E, Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)},
			kprom.HistogramOpts{Enable: kprom.RequestThrottled, Buckets: prometheus.ExponentialBuckets(0.01, 4, 6)},
		),
	)}
}

func (m *clientMetrics) OnNewClient(cl *kgo.Client) { m.once.Do(func() { m.Metrics.OnNewClient(cl) }) }

// OnClientClosed keeps the metrics: the other clients share them.
func (*clientMetrics) OnClientClosed(*kgo.Client) {}

type countersOnly struct{ prometheus.Registerer } // leaves out kprom's gauges, each of which reads one client's state

func (r countersOnly) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		if _, single := c.(prometheus.Metric); !single {
			r.Registerer.MustRegister(c)
		}
	}
}
