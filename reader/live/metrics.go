package live

import "github.com/prometheus/client_golang/prometheus"

// Kinds of streams, as labels.
const (
	kindSSE       = "sse"
	kindWebSocket = "websocket"
)

// metrics of the live streams. They are made whole, and registered once.
type metrics struct {
	streams  *prometheus.GaugeVec   // kind
	messages *prometheus.CounterVec // kind
	dropped  *prometheus.CounterVec // kind
	refused  *prometheus.CounterVec // reason
}

func newMetrics() *metrics {
	m := &metrics{
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "kudos", Subsystem: "reader", Name: "streams",
			Help: "Live streams that are open, by kind."}, []string{"kind"}),
		messages: newCounter("stream_messages_total", "Messages sent on live streams, by kind.", "kind"),
		dropped:  newCounter("streams_dropped_total", "Live streams that were closed because the client was too slow, by kind.", "kind"),
		refused:  newCounter("streams_refused_total", "Live streams that were not opened, by the word of the problem.", "reason"),
	}
	for _, kind := range []string{kindSSE, kindWebSocket} {
		m.streams.WithLabelValues(kind)
		m.messages.WithLabelValues(kind)
		m.dropped.WithLabelValues(kind)
	}
	for _, reason := range []string{slugInvalid, slugOrigin, slugTooMany, slugNotReady, slugNotRunning, slugFailed} {
		m.refused.WithLabelValues(reason)
	}
	return m
}

func newCounter(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "kudos", Subsystem: "reader", Name: name, Help: help}, []string{label})
}

func (m *metrics) register(reg prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.streams, m.messages, m.dropped, m.refused} {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}
