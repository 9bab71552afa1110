package producer

import (
	"github.com/prometheus/client_golang/prometheus"

	"kudos/schema"
	"kudos/schema/problem"
)

// reasonNotAcknowledged: the event may be in Kafka or not.
const reasonNotAcknowledged = "not_acknowledged"

// metrics of the role. It is made whole, and registered once.
type metrics struct {
	requests        *prometheus.CounterVec // route, method, code
	publishSeconds  prometheus.Histogram
	accepted        prometheus.Counter
	unacknowledged  prometheus.Counter
	rejected        *prometheus.CounterVec // reason
	regionMalformed prometheus.Counter
}

func newMetrics() *metrics {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "kudos", Subsystem: "producer", Name: name, Help: help}
	}
	m := &metrics{
		requests: prometheus.NewCounterVec(opts("requests_total", "HTTP requests by route, method and status code."),
			[]string{"route", "method", "code"}),
		publishSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "kudos", Subsystem: "producer", Name: "publish_seconds",
			Help:    "Seconds from handing a request's events to the Kafka client to the answer for the last of them.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14), // 1 ms to 8 s
		}),
		accepted:        prometheus.NewCounter(opts("accepted_total", "Events that Kafka has acknowledged.")),
		unacknowledged:  prometheus.NewCounter(opts("unacknowledged_total", "Events whose request was told that Kafka had not acknowledged them.")),
		rejected:        prometheus.NewCounterVec(opts("rejected_total", "Events and lines that were no event, by reason."), []string{"reason"}),
		regionMalformed: prometheus.NewCounter(opts("region_malformed_total", "Events taken whose region was none and became ZZ.")),
	}
	for _, reason := range []string{
		string(schema.Undecodable), string(schema.ZeroID), string(schema.UnknownAction), string(schema.NegativeTime),
		string(schema.OverSize), problem.UnknownField, problem.UnknownValue, problem.Empty,
	} {
		m.rejected.WithLabelValues(reason)
	}
	return m
}

func (m *metrics) register(reg prometheus.Registerer, buffered func() float64) error {
	for _, c := range []prometheus.Collector{
		m.requests, m.publishSeconds, m.accepted, m.unacknowledged, m.rejected, m.regionMalformed,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "kudos", Subsystem: "producer", Name: "buffered_records", Help: "Events that wait for Kafka.",
		}, buffered),
	} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}
