package producer

import (
	"github.com/prometheus/client_golang/prometheus"

	"kudos/httpserver/problem"
	"kudos/schema"
)

// reasonNotAcknowledged means that the event may or may not be in Kafka.
const reasonNotAcknowledged = "not_acknowledged"

type metrics struct {
	requests        *prometheus.CounterVec // route, method, code
	publishSeconds  prometheus.Histogram
	accepted        prometheus.Counter
	unacknowledged  prometheus.Counter
	rejected        *prometheus.CounterVec // reason
	refused         *prometheus.CounterVec // kind
	regionMalformed prometheus.Counter
}

func newMetrics() *metrics {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "kudos", Subsystem: "producer", Name: name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter { return prometheus.NewCounter(opts(name, help)) }
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(opts(name, help), labels)
	}
	m := &metrics{
		requests: counters("requests_total", "HTTP requests by route, method and status code.",
			"route", "method", "code"),
		publishSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "kudos", Subsystem: "producer", Name: "publish_seconds",
			Help:    "Seconds from passing a request's events to the Kafka client to the result of the last one.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14), // 1 ms to 8 s
		}),
		accepted: counter("accepted_total", "Events that Kafka has acknowledged."),
		unacknowledged: counter("unacknowledged_total",
			"Events that were reported to the client as not acknowledged by Kafka."),
		rejected: counters("rejected_total", "Events and lines that were rejected, by reason.", "reason"),
		refused: counters("refused_total", "Requests without valid authentication (unauthenticated), from an "+
			"address above its rate limit (address_rate) or above a limit of concurrency (requests, batches, events) "+
			"or an address's share of it (address_requests, address_batches, address_events); events for another "+
			"user (forbidden) or for a user above the rate limit (user_rate).", "kind"),
		regionMalformed: counter("region_malformed_total", "Accepted events whose region was malformed and became ZZ."),
	}
	for _, reason := range rejectReasons {
		m.rejected.WithLabelValues(reason)
	}
	for _, kind := range []string{refusedUnauthenticated, refusedForbidden, refusedAddressRate, refusedUserRate} {
		m.refused.WithLabelValues(kind)
	}
	return m
}

// rejectReasons are the reasons to reject an event before it is sent to Kafka.
var rejectReasons = []string{
	string(schema.Undecodable), string(schema.ZeroID), string(schema.UnknownAction), string(schema.NegativeTime),
	string(schema.OverSize), problem.UnknownField, problem.UnknownValue, problem.Empty,
	problem.Repeated, reasonForbidden, reasonRateLimited,
}

func (m *metrics) register(reg prometheus.Registerer, buffered, keysRead func() float64) error {
	for _, c := range []prometheus.Collector{
		m.requests, m.publishSeconds, m.accepted, m.unacknowledged, m.rejected, m.refused, m.regionMalformed,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "kudos", Subsystem: "producer",
			Name: "buffered_records", Help: "Events that wait for Kafka."}, buffered),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "kudos", Subsystem: "producer", Name: "keys_read_timestamp_seconds",
			Help: "Unix time in seconds when the issuer's keys were last read; 0: never, or producer.auth is not jwt.",
		}, keysRead),
	} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}
