package ranker

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"kudos/ranker/window"
)

// metrics of the role. Counters count what is committed.
type metrics struct {
	updates  prometheus.Counter
	late     *prometheus.CounterVec // by window
	rankings prometheus.Counter
	posts    *prometheus.GaugeVec // by partition
	buckets  *prometheus.GaugeVec // by partition
}

func newMetrics(reg prometheus.Registerer, config *window.Config) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		updates: f.NewCounter(prometheus.CounterOpts{Namespace: "kudos", Name: "ranker_updates_total",
			Help: "Records of like-updates that were counted in windows."}),
		late: f.NewCounterVec(prometheus.CounterOpts{Namespace: "kudos", Name: "ranker_late_likes_total",
			Help: "Likes that came when their time had left the window: they are not in its rankings."}, []string{"window"}),
		rankings: f.NewCounter(prometheus.CounterOpts{Namespace: "kudos", Name: "rankings_published_total",
			Help: "Rankings written to trending."}),
		posts: f.NewGaugeVec(prometheus.GaugeOpts{Namespace: "kudos", Name: "ranker_active_posts",
			Help: "Posts that have likes in some window, counted in each region and in global."}, []string{"partition"}),
		buckets: f.NewGaugeVec(prometheus.GaugeOpts{Namespace: "kudos", Name: "ranker_buckets",
			Help: "Buckets of those posts that have likes."}, []string{"partition"}),
	}
	for _, w := range config.Windows {
		m.late.WithLabelValues(w.Name)
	}
	return m
}

func (m *metrics) size(partition int32, posts, buckets int) {
	label := strconv.Itoa(int(partition))
	m.posts.WithLabelValues(label).Set(float64(posts))
	m.buckets.WithLabelValues(label).Set(float64(buckets))
}

// gone is for a partition that is another process's now.
func (m *metrics) gone(partition int32) {
	label := strconv.Itoa(int(partition))
	m.posts.DeleteLabelValues(label)
	m.buckets.DeleteLabelValues(label)
}
