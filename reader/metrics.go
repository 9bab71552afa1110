package reader

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"kudos/reader/view"
)

// viewCollector exports the view of the state table as metrics.
type viewCollector struct{ likes *view.Likes }

func viewDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("kudos_reader_"+name, help, labels, nil)
}

var (
	viewReady    = viewDesc("partition_ready", "1 if the view of the partition is ready, else 0.", "partition")
	viewPosition = viewDesc("position", "Offset in likes that the responses from a partition reflect.", "partition")
	viewBehind   = viewDesc("behind_records",
		"Records of the state table that a partition is behind while it is not ready; 0 once it is.",
		"partition")
	viewEvents = viewDesc("lag_events", "Events in likes that are not in the view yet.")
	viewLag    = viewDesc("lag_seconds", "Seconds that the view is behind likes, at most.")
	viewPosts  = viewDesc("posts", "Posts with a current reaction.")
)

func (c viewCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{viewReady, viewPosition, viewBehind, viewEvents, viewLag, viewPosts} {
		ch <- d
	}
}

func (c viewCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	n, _ := c.likes.Partitions() // 0 while not known
	for p := range n {
		partition := strconv.Itoa(int(p))
		asOf, err := c.likes.AsOf(p)
		var notReady *view.NotReadyError
		switch {
		case err == nil:
			gauge(viewReady, 1, partition)
			gauge(viewBehind, 0, partition)
			gauge(viewPosition, float64(asOf.Offset), partition)
		case errors.As(err, &notReady):
			gauge(viewReady, 0, partition)
			if notReady.Behind >= 0 {
				gauge(viewBehind, float64(notReady.Behind), partition)
			}
		}
	}
	gauge(viewPosts, float64(c.likes.Totals().Posts))
	if events, behind, known := c.likes.Lag(); known {
		gauge(viewEvents, float64(events))
		gauge(viewLag, behind.Seconds())
	}
}

type apiMetrics struct {
	requests *prometheus.CounterVec   // route, method, code
	seconds  *prometheus.HistogramVec // route
}

func newAPIMetrics(reg prometheus.Registerer) (*apiMetrics, error) {
	m := &apiMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "kudos", Subsystem: "reader", Name: "requests_total",
			Help: "HTTP requests by route, method and status code, without streams.",
		}, []string{"route", "method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "kudos", Subsystem: "reader", Name: "request_seconds",
			Help: "Seconds from the headers of a request to the end of its response, by route, " +
				"including the wait for min_offset.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 4, 10), // 50 µs to 13 s
		}, []string{"route"}),
	}
	return m, errors.Join(reg.Register(m.requests), reg.Register(m.seconds))
}

func (m *apiMetrics) counted(route string, next http.Handler) http.Handler {
	if route == "/" {
		route = "other"
	}
	label := prometheus.Labels{"route": route}
	return promhttp.InstrumentHandlerDuration(m.seconds.MustCurryWith(label),
		promhttp.InstrumentHandlerCounter(m.requests.MustCurryWith(label), next))
}
