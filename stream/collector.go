package stream

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

type collector []shownGroup

type shownGroup struct {
	name   string
	status func() ([]PartitionStatus, error)
}

// NewCollector returns a Prometheus collector of the processors' partitions.
func NewCollector(processors ...*Processor) prometheus.Collector {
	var c collector
	for _, p := range processors {
		c = append(c, shownGroup{p.opts.Group, p.Status})
	}
	return c
}

// NewRoleCollector is for a role that reads all partitions without a group: the same metrics, by the role's name.
func NewRoleCollector(name string, status func() ([]PartitionStatus, error)) prometheus.Collector {
	return collector{{name, status}}
}

var (
	// The name in exporters of consumer groups. They count transaction markers at the log's end as lag; this does not.
	lagDesc = prometheus.NewDesc("kafka_consumergroup_lag",
		"Consumer lag of an assigned partition, in records.", []string{"consumergroup", "topic", "partition"}, nil)
	standsDesc = prometheus.NewDesc("kudos_position_age_seconds",
		"Seconds since the position of an assigned partition last moved, while there is lag; otherwise 0.",
		[]string{"group", "partition"}, nil)
	positionDesc = prometheus.NewDesc("kudos_position",
		"Next offset that an assigned partition reads.", []string{"group", "partition"}, nil)
	stateDesc = prometheus.NewDesc("kudos_partition_state",
		"1 for the state that an assigned partition is in: starting, running, parked or fenced.",
		[]string{"group", "partition", "state"}, nil)
	parkedDesc = prometheus.NewDesc("kudos_parked_partitions",
		"Assigned partitions that are parked, by cause.", []string{"group", "cause"}, nil)
)

// Describe sends nothing: the roles of one process each have a collector of the same metrics.
func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, g := range c {
		statuses, _ := g.status() // after an error there are none: nothing is assigned
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{g.name}, labels...)...)
		}
		parked := map[Cause]int{}
		for _, s := range statuses {
			if s.State == StateParked {
				parked[s.Cause]++
			}
			partition := strconv.Itoa(int(s.Partition))
			gauge(lagDesc, float64(s.Lag), s.Topic, partition)
			gauge(standsDesc, s.Stands.Seconds(), partition)
			gauge(positionDesc, float64(s.Position.Offset), partition)
			gauge(stateDesc, 1, partition, s.State)
		}
		for _, cause := range causes { // all of them: an alert needs a 0 to resolve
			gauge(parkedDesc, float64(parked[cause]), string(cause))
		}
	}
}
