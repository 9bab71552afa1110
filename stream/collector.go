package stream

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

type collector struct {
	group  string
	status func() ([]PartitionStatus, error)
}

// NewCollector returns a Prometheus collector of a processor's partitions.
func NewCollector(p *Processor) prometheus.Collector { return collector{p.opts.Group, p.Status} }

// NewRoleCollector is for a role that reads all partitions without a group: the same metrics, by the role's name.
func NewRoleCollector(name string, status func() ([]PartitionStatus, error)) prometheus.Collector {
	return collector{name, status}
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
	hiddenDesc = prometheus.NewDesc("kudos_hidden_records", "Records of an assigned partition that an open "+
		"transaction hides: high watermark less last stable offset.", []string{"group", "partition"}, nil)
	openDesc = prometheus.NewDesc("kudos_open_transaction_age_seconds", "Seconds that the last stable offset of an "+
		"assigned partition has not moved, while records are hidden; else 0.", []string{"group", "partition"}, nil)
	parkedDesc = prometheus.NewDesc("kudos_parked_partitions",
		"Assigned partitions that are parked, by cause.", []string{"group", "cause"}, nil)
)

// Describe sends nothing: the groups of one process each have a collector of the same metrics.
func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	statuses, _ := c.status() // after an error there are none: nothing is assigned
	parked := map[Cause]int{}
	for _, s := range statuses {
		if s.State == StateParked {
			parked[s.Cause]++
		}
		partition := strconv.Itoa(int(s.Partition))
		gauge(ch, lagDesc, float64(s.Lag), c.group, s.Topic, partition)
		gauge(ch, standsDesc, s.Stands.Seconds(), c.group, partition)
		gauge(ch, positionDesc, float64(s.Position.Offset), c.group, partition)
		gauge(ch, hiddenDesc, float64(s.hidden.records), c.group, partition)
		gauge(ch, openDesc, s.hidden.age.Seconds(), c.group, partition)
		gauge(ch, stateDesc, 1, c.group, partition, s.State)
	}
	for _, cause := range causes { // all of them: an alert needs a 0 to resolve
		gauge(ch, parkedDesc, float64(parked[cause]), c.group, string(cause))
	}
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}
