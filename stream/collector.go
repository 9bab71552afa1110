package stream

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// collector shows the assigned partitions of processors as metrics.
type collector struct{ processors []*Processor }

// NewCollector makes a Prometheus collector of the processors' partitions.
func NewCollector(processors ...*Processor) prometheus.Collector { return collector{processors} }

var (
	lagDesc = prometheus.NewDesc("kudos_lag_records",
		"Records behind the position of an assigned partition.", []string{"group", "partition"}, nil)
	positionDesc = prometheus.NewDesc("kudos_position",
		"Next offset that an assigned partition reads.", []string{"group", "partition"}, nil)
	stateDesc = prometheus.NewDesc("kudos_partition_state",
		"1 for the state that an assigned partition is in: starting, running, parked or fenced.", []string{"group", "partition", "state"}, nil)
)

// Describe tells nothing: the roles of one process each have a collector of the same metrics.
func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c.processors {
		statuses, _ := p.Status() // none: nothing is assigned
		for _, s := range statuses {
			partition := strconv.Itoa(int(s.Partition))
			gauge := func(d *prometheus.Desc, v float64, labels ...string) {
				ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{p.opts.Group, partition}, labels...)...)
			}
			gauge(lagDesc, float64(s.Lag))
			gauge(positionDesc, float64(s.Position.Offset))
			gauge(stateDesc, 1, s.State)
		}
	}
}
