package reader

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"kudos/reader/view"
)

// viewCollector shows the copy of the state table as metrics.
type viewCollector struct{ likes *view.Likes }

func newViewCollector(likes *view.Likes) prometheus.Collector { return viewCollector{likes} }

var (
	viewReadyDesc = prometheus.NewDesc("kudos_reader_partition_ready",
		"1 if a partition of the state table can be answered from.", []string{"partition"}, nil)
	viewPositionDesc = prometheus.NewDesc("kudos_reader_position",
		"The offset in likes that a partition's answers are as of.", []string{"partition"}, nil)
	viewBehindDesc = prometheus.NewDesc("kudos_reader_behind_records",
		"Records of the state table that a partition is behind as long as it cannot be answered from; then 0.", []string{"partition"}, nil)
	viewEventsDesc = prometheus.NewDesc("kudos_reader_lag_events",
		"Events in likes that no answer has yet.", nil, nil)
	viewLagDesc = prometheus.NewDesc("kudos_reader_lag_seconds",
		"How long ago all that is answered was all there was in likes, at most.", nil, nil)
	viewPostsDesc = prometheus.NewDesc("kudos_reader_posts",
		"Posts that have a reaction.", nil, nil)
)

func (c viewCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{viewReadyDesc, viewPositionDesc, viewBehindDesc, viewEventsDesc, viewLagDesc, viewPostsDesc} {
		ch <- d
	}
}

func (c viewCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	n, _ := c.likes.Partitions() // none: not known yet
	for p := range n {
		partition := strconv.Itoa(int(p))
		asOf, err := c.likes.AsOf(p)
		var notReady *view.NotReadyError
		switch {
		case err == nil:
			gauge(viewReadyDesc, 1, partition)
			gauge(viewBehindDesc, 0, partition)
			gauge(viewPositionDesc, float64(asOf.Offset), partition)
		case errors.As(err, &notReady):
			gauge(viewReadyDesc, 0, partition)
			if notReady.Behind >= 0 {
				gauge(viewBehindDesc, float64(notReady.Behind), partition)
			}
		}
	}
	gauge(viewPostsDesc, float64(c.likes.Totals().Posts))
	if events, behind, known := c.likes.Lag(); known {
		gauge(viewEventsDesc, float64(events))
		gauge(viewLagDesc, behind.Seconds())
	}
}
