package bench

import (
	"cmp"
	"maps"
	"slices"

	"kudos/bench/producer"
)

// kudosName is the contender that the others are compared with.
const kudosName = "kudos"

// stat is a figure over the rounds.
type stat struct {
	median, least, most float64
	rounds              int
}

func statOf(values []float64) stat {
	if len(values) == 0 {
		return stat{}
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return stat{median: (values[(n-1)/2] + values[n/2]) / 2, least: values[0], most: values[n-1], rounds: n}
}

// over collects a figure of each run that is wanted and has it.
func (r *Report) over(figure func(*Run) (value float64, ok bool)) stat {
	var values []float64
	for i := range r.Runs {
		if v, ok := figure(&r.Runs[i]); ok {
			values = append(values, v)
		}
	}
	return statOf(values)
}

// drains is a figure of a contender's drains of a shape.
func (r *Report) drains(shape, contender string, figure func(*Drain) (float64, bool)) stat {
	return r.over(func(run *Run) (float64, bool) {
		if run.Drain == nil || run.Contender != contender || run.Load.Shape.Name != shape {
			return 0, false
		}
		return figure(run.Drain)
	})
}

// ratio is kudos's events a second by a peer's, within each round.
func (r *Report) ratio(shape, peer string) stat {
	rates := map[string]map[int]float64{kudosName: {}, peer: {}}
	for _, run := range r.Runs {
		if run.Drain != nil && run.Load.Shape.Name == shape && rates[run.Contender] != nil {
			rates[run.Contender][run.Round] = run.Drain.EventsPerSecond
		}
	}
	var values []float64
	for round, ours := range rates[kudosName] {
		if theirs, ok := rates[peer][round]; ok {
			values = append(values, ours/theirs)
		}
	}
	return statOf(values)
}

// The figures of a drain.
func eventsPerSecond(d *Drain) (float64, bool) { return d.EventsPerSecond, true }

// cpuPerMillion is the CPU seconds per 10⁶ events of a contender's process, or of all processes together.
func cpuPerMillion(all bool) func(*Drain) (float64, bool) {
	return func(d *Drain) (sum float64, ok bool) {
		for _, name := range slices.Sorted(maps.Keys(d.Used)) { // in order, or the last digit would differ from time to time
			if all || name == contenderName {
				sum, ok = sum+d.Used[name].CPUSeconds, true
			}
		}
		return sum / float64(d.Events) * 1e6, ok
	}
}

func peakMiB(process string) func(*Drain) (float64, bool) {
	return func(d *Drain) (float64, bool) {
		u, ok := d.Used[process]
		return float64(u.PeakBytes) / mib, ok
	}
}

func rowsPerEvent(d *Drain) (float64, bool) {
	return float64(d.Rows) / float64(d.Events), d.Rows != notCounted
}

func bytesPerPair(d *Drain) (float64, bool) {
	return float64(d.State.Bytes) / float64(d.State.Pairs), d.State.Pairs > 0
}

// latencies is a figure of a contender's latency at a part of its drain rate.
func (r *Report) latencies(contender string, percent int, figure func(*LatencyLevel) (float64, bool)) stat {
	return r.over(func(run *Run) (float64, bool) {
		if run.Latency == nil || run.Contender != contender {
			return 0, false
		}
		for i := range run.Latency.Levels {
			if level := &run.Latency.Levels[i]; level.Percent == percent {
				return figure(level)
			}
		}
		return 0, false
	})
}

// drained are the workloads of drains, in the order of the runs.
func (r *Report) drained() []Workload {
	var loads []Workload
	for _, run := range r.Runs {
		if run.Drain != nil && !slices.ContainsFunc(loads, func(l Workload) bool { return l.Shape == run.Load.Shape }) {
			loads = append(loads, run.Load)
		}
	}
	return loads
}

// percents are the parts of the drain rate that latency was measured at, and the workload.
func (r *Report) percents() (percents []int, load Workload) {
	for _, run := range r.Runs {
		if run.Latency == nil {
			continue
		}
		load = run.Load
		for _, level := range run.Latency.Levels {
			if !slices.Contains(percents, level.Percent) {
				percents = append(percents, level.Percent)
			}
		}
	}
	slices.Sort(percents)
	return percents, load
}

func levelRate(l *LatencyLevel) (float64, bool) { return l.EventsPerSecond, true }

// place is where a probe is looked for.
type place struct {
	name string
	of   func(*LatencyLevel) *Quantiles // nil where nobody looked
}

// quantile is a figure of a place.
func (p place) quantile(of func(*Quantiles) float64) func(*LatencyLevel) (float64, bool) {
	return func(l *LatencyLevel) (float64, bool) {
		q := p.of(l)
		if q == nil {
			return 0, false
		}
		return of(q), true
	}
}

var places = []place{
	{"Kafka", func(l *LatencyLevel) *Quantiles { return &l.Kafka }},
	{"MySQL", func(l *LatencyLevel) *Quantiles { return &l.MySQL }},
	{"the reader", func(l *LatencyLevel) *Quantiles { return l.Reader }},
}

var quantileColumns = []struct {
	name string
	of   func(*Quantiles) float64
}{
	{"p50", func(q *Quantiles) float64 { return q.P50 }},
	{"p99", func(q *Quantiles) float64 { return q.P99 }},
	{"p99.9", func(q *Quantiles) float64 { return q.P999 }},
}

const mib = 1 << 20

// recoveryRow is one figure of recoveries.
type recoveryRow struct {
	what string
	of   func(*Recovery) float64
}

func (row recoveryRow) figure(rec *Recovery) (float64, bool) { return row.of(rec), true }

var recoveryRows = []recoveryRow{
	{"pairs", func(rec *Recovery) float64 { return float64(rec.Pairs) }},
	{"records of the state table's topic", func(rec *Recovery) float64 { return float64(rec.Records) }},
	{"seconds", func(rec *Recovery) float64 { return rec.Seconds }},
	{"pairs a second", func(rec *Recovery) float64 { return rec.EntriesPerSecond }},
	{"resident memory when ready, MiB", func(rec *Recovery) float64 { return float64(rec.RSSBytes) / mib }},
	{"peak of it until then, MiB", func(rec *Recovery) float64 { return float64(rec.PeakBytes) / mib }},
	{"resident memory of the process that had drained the events, MiB", func(rec *Recovery) float64 { return float64(rec.Drained.RSSBytes) / mib }},
	{"state on disk after compaction, bytes a pair", func(rec *Recovery) float64 { v, _ := bytesPerPair(&rec.Drained); return v }},
}

// recoveries is a figure of the recoveries.
func (r *Report) recoveries(figure func(*Recovery) (float64, bool)) stat {
	return r.over(func(run *Run) (float64, bool) {
		if run.Recovery == nil {
			return 0, false
		}
		return figure(run.Recovery)
	})
}

// endpoint is one of the producer's.
type endpoint func(*producer.Result) *producer.Endpoint

var endpoints = []endpoint{
	func(res *producer.Result) *producer.Endpoint { return &res.Single },
	func(res *producer.Result) *producer.Endpoint { return &res.Batch },
}

// accepting is a figure of one of the producer's endpoints.
func (r *Report) accepting(of endpoint, figure func(*producer.Endpoint) float64) stat {
	return r.over(func(run *Run) (float64, bool) {
		if run.Producer == nil {
			return 0, false
		}
		return figure(of(run.Producer)), true
	})
}

// accepted is the workload that the producer was measured with, and what it came to first; nil if it was not.
func (r *Report) accepted() (Workload, *producer.Result) {
	for _, run := range r.Runs {
		if run.Producer != nil {
			return run.Load, run.Producer
		}
	}
	return Workload{}, nil
}

// acceptingColumns are the figures of an endpoint.
var acceptingColumns = []struct {
	name, unit string
	of         func(*producer.Endpoint) float64
}{
	{"highest rate", "likes/s", func(e *producer.Endpoint) float64 { return e.Capacity.LikesPerSecond }},
	{"p50 at half of it", "ms", func(e *producer.Endpoint) float64 { return e.Half.P50Ms }},
	{"p99 at half of it", "ms", halfP99},
	{"p99.9 at half of it", "ms", func(e *producer.Endpoint) float64 { return e.Half.P999Ms }},
}

func halfP99(e *producer.Endpoint) float64 { return e.Half.P99Ms }

// mostRSS is the larger of what a process has after it drained so many pairs, and after it recovered them, in MiB.
func mostRSS(rec *Recovery) (float64, bool) {
	return float64(max(rec.RSSBytes, rec.Drained.RSSBytes)) / mib, rec.RSSBytes > 0
}

// order is the contenders' place in tables: kudos, then the peers in the order of the issue, then others.
func (r *Report) order() []string {
	known := []string{kudosName, "redis", "goka", "streams", "sql"}
	var names []string
	for _, run := range r.Runs {
		if !slices.Contains(names, run.Contender) {
			names = append(names, run.Contender)
		}
	}
	place := func(name string) int {
		if i := slices.Index(known, name); i >= 0 {
			return i
		}
		return len(known)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b)) })
	return names
}
