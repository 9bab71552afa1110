package reader

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// apiMetrics of the API. It is made whole, and registered once.
type apiMetrics struct {
	requests *prometheus.CounterVec   // route, method, code
	seconds  *prometheus.HistogramVec // route
}

func newAPIMetrics() *apiMetrics {
	return &apiMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kudos", Subsystem: "reader", Name: "requests_total",
			Help: "HTTP requests by route, method and status code; streams are not among them.",
		}, []string{"route", "method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "kudos", Subsystem: "reader", Name: "request_seconds",
			Help:    "Seconds from the headers of a request to the end of its answer, by route; the wait for min_offset is part of it.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 4, 10), // 50 µs to 13 s
		}, []string{"route"}),
	}
}

func (m *apiMetrics) register(reg prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.requests, m.seconds} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// counted counts a route's requests, and how long they took.
func (m *apiMetrics) counted(route string, next http.Handler) http.Handler {
	if route == "/" {
		route = "other"
	}
	label := prometheus.Labels{"route": route}
	return promhttp.InstrumentHandlerDuration(m.seconds.MustCurryWith(label),
		promhttp.InstrumentHandlerCounter(m.requests.MustCurryWith(label), next))
}
