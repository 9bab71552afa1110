package stream

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	standbyBehindDesc = prometheus.NewDesc("kudos_standby_behind_records",
		"Offsets that the standby copy of a partition of the group's state table is behind the end of its changelog.", []string{"group", "partition"}, nil)
	standbyCopiesDesc = prometheus.NewDesc("kudos_standby_copies",
		"Standby copies of partitions of the group's state table, by what they do: opening, following or failing.", []string{"group", "state"}, nil)
)

type standbyCollector struct{ p *Processor }

// NewStandbyCollector makes a Prometheus collector of a processor's standby copies.
func NewStandbyCollector(p *Processor) prometheus.Collector { return standbyCollector{p} }

func (standbyCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- standbyBehindDesc
	ch <- standbyCopiesDesc
}

func (c standbyCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{c.p.opts.Group}, labels...)...)
	}
	copies := map[string]int{}
	for _, f := range c.p.standbyCopies() {
		state, behind := f.status()
		copies[state]++
		if behind >= 0 {
			gauge(standbyBehindDesc, float64(behind), strconv.Itoa(int(f.partition)))
		}
	}
	for _, state := range standbyStates { // all of them: an alert needs a 0 to come back to
		gauge(standbyCopiesDesc, float64(copies[state]), state)
	}
}

func (p *Processor) standbyCopies() []*follower {
	p.mu.Lock()
	g := p.mu.group
	p.mu.Unlock()
	if g == nil {
		return nil
	}
	return g.standby.all()
}
