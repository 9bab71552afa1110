package ranker

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"kudos/ranker/window"
)

// metrics of the groups with a table. Counters count committed work only.
type metrics struct {
	updates  prometheus.Counter
	late     *prometheus.CounterVec // by window
	rankings prometheus.Counter
	posts    *prometheus.GaugeVec // by partition
	buckets  *prometheus.GaugeVec // by partition
}

func newMetrics(reg prometheus.Registerer, config *window.Config) *metrics {
	f := promauto.With(reg)
	gauge := func(name, help string) *prometheus.GaugeVec {
		return f.NewGaugeVec(prometheus.GaugeOpts{Namespace: "kudos", Name: name, Help: help}, []string{"partition"})
	}
	m := &metrics{
		updates: f.NewCounter(named("ranker_updates_total", "Records of like-updates that were counted in windows.")),
		late: f.NewCounterVec(named("ranker_late_likes_total",
			"Likes that arrived after their time had left the window: its rankings exclude them."), []string{"window"}),
		rankings: f.NewCounter(named("rankings_published_total", "Rankings written to trending.")),
		posts: gauge("ranker_active_posts",
			"Posts that have likes in any window, counted once per region and once in global."),
		buckets: gauge("ranker_buckets", "Time buckets with likes of those posts."),
	}
	for _, w := range config.Windows {
		m.late.WithLabelValues(w.Name)
	}
	return m
}

// mysqlMetrics count what trending-mysql has committed.
type mysqlMetrics struct{ rankings, transactions prometheus.Counter }

func newMySQLMetrics(reg prometheus.Registerer) *mysqlMetrics {
	f := promauto.With(reg)
	return &mysqlMetrics{
		rankings: f.NewCounter(named("ranker_mysql_rankings_total",
			"Rankings written to MySQL, without those that a newer one had already replaced.")),
		transactions: f.NewCounter(named("ranker_mysql_transactions_total",
			"MySQL transactions committed by trending-mysql.")),
	}
}

func named(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Namespace: "kudos", Name: name, Help: help}
}
