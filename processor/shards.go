package processor

import (
	"github.com/prometheus/client_golang/prometheus"

	"kudos/sql"
	"kudos/stream"
)

var shardParkedDesc = prometheus.NewDesc("kudos_mysql_parked_partitions",
	"Assigned partitions of like-updates that are parked, by the shard that has their counts.", []string{"shard", "server"}, nil)

// shardCollector shows which MySQL server it is that partitions wait for: one that is away parks all of its own, and none
// of another.
type shardCollector struct {
	apply *stream.Processor
	db    *sql.Shards
}

func (c shardCollector) Describe(ch chan<- *prometheus.Desc) { ch <- shardParkedDesc }

func (c shardCollector) Collect(ch chan<- prometheus.Metric) {
	parked := map[*sql.Store]int{}
	statuses, _ := c.apply.Status() // none: nothing is assigned
	for _, s := range statuses {
		if s.State == stream.StateParked {
			parked[c.db.Of(s.Partition)]++
		}
	}
	for _, store := range c.db.All() { // all of them: an alert needs a 0 to come back to
		ch <- prometheus.MustNewConstMetric(shardParkedDesc, prometheus.GaugeValue, float64(parked[store]), store.Shard().Label(), store.Server())
	}
}
