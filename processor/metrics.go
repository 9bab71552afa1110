package processor

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"kudos/schema"
)

// metrics of the role. Counters count what is committed: work that was repeated after
// a failure counts once.
type metrics struct {
	events       prometheus.Counter
	deadLetters  *prometheus.CounterVec // by reason
	forwarded    prometheus.Counter
	capped       prometheus.Counter
	badRegions   prometheus.Counter
	transactions prometheus.Counter
	updates      prometheus.Counter
	applied      prometheus.Counter
	rows         prometheus.Counter
	applies      prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Namespace: "kudos", Name: name, Help: help})
	}
	m := &metrics{
		events:       counter("events_folded_total", "Records of likes that were judged, whatever came of them."),
		forwarded:    counter("events_forwarded_total", "Events found in the wrong partition and forwarded to the right one. Above zero: a writer does not use Kafka's default partitioner (murmur2)."),
		capped:       counter("events_capped_total", "Events whose time was more than 60 s ahead of the log-append time."),
		badRegions:   counter("events_bad_region_total", "Events whose region is no ISO 3166 code; they count under ZZ."),
		transactions: counter("fold_transactions_total", "Kafka transactions committed by latest-like-action."),
		updates:      counter("updates_published_total", "Records written to like-updates."),
		applied:      counter("updates_applied_total", "Records of like-updates applied to MySQL."),
		rows:         counter("mysql_rows_total", "Rows of like_count upserted."),
		applies:      counter("mysql_transactions_total", "MySQL transactions committed by like-count."),
		deadLetters: f.NewCounterVec(prometheus.CounterOpts{Namespace: "kudos", Name: "dead_letters_total",
			Help: "Records of likes that can never be events, moved to likes.dlt."}, []string{"reason"}),
	}
	for _, reason := range schema.PoisonReasons {
		m.deadLetters.WithLabelValues(string(reason))
	}
	return m
}
