package bench

import (
	"fmt"
	"math"
	"slices"

	"kudos/bench/producer"
)

// Stat is a figure over the rounds.
type Stat struct {
	Median, Least, Most float64
	Rounds              int
}

// StatOf is over these values, and empty without any.
func StatOf(values []float64) Stat {
	if len(values) == 0 {
		return Stat{}
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return Stat{Median: (values[(n-1)/2] + values[n/2]) / 2, Least: values[0], Most: values[n-1], Rounds: n}
}

// With is the figure with its unit: median and, of several rounds, least and most. Empty where there is none.
func (s Stat) With(unit string) string {
	switch {
	case s.Rounds == 0:
		return ""
	case s.Rounds == 1 || s.Least == s.Most:
		return Number(s.Median) + unit
	}
	return fmt.Sprintf("%s%s (%s–%s)", Number(s.Median), unit, Number(s.Least), Number(s.Most))
}

// Number is a figure with three digits that count, and commas between thousands.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case a == math.Trunc(a) && a < 1000:
		return fmt.Sprintf("%.0f", v)
	case a < 0.01:
		return fmt.Sprintf("%.2g", v)
	case a < 10:
		return fmt.Sprintf("%.2f", v)
	case a < 100:
		return fmt.Sprintf("%.1f", v)
	}
	digits := []byte(fmt.Sprintf("%.0f", v))
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = slices.Insert(digits, i, ',')
	}
	return string(digits)
}

// none is a figure that a run does not have.
var none = math.NaN()

const mib = 1 << 20

// over collects a figure of the results of runs: of those that have one, and whose figure is not NaN.
func over[T any](r *Report, result func(*Run) *T, figure func(*T) float64) Stat {
	var values []float64
	for i := range r.Runs {
		if of := result(&r.Runs[i]); of != nil {
			if v := figure(of); !math.IsNaN(v) {
				values = append(values, v)
			}
		}
	}
	return StatOf(values)
}

// Drains is a figure of a contender's drains of a shape.
func (r *Report) Drains(shape, contender string, figure func(*Drain) float64) Stat {
	return over(r, func(run *Run) *Drain {
		if run.Contender != contender || run.Load.Shape.Name != shape {
			return nil
		}
		return run.Drain
	}, figure)
}

// Drained are the workloads of drains, in the order of the runs.
func (r *Report) Drained() []Workload {
	var loads []Workload
	for _, run := range r.Runs {
		if run.Drain != nil && !slices.ContainsFunc(loads, func(l Workload) bool { return l.Shape == run.Load.Shape }) {
			loads = append(loads, run.Load)
		}
	}
	return loads
}

// CPUPerMillion is the CPU seconds of a process per 10⁶ events.
func CPUPerMillion(process string) func(*Drain) float64 {
	return ofProcess(process, func(d *Drain, u Usage) float64 { return u.CPUSeconds / float64(d.Events) * 1e6 })
}

// PeakMiB is the most memory that a process had.
func PeakMiB(process string) func(*Drain) float64 {
	return ofProcess(process, func(_ *Drain, u Usage) float64 { return float64(u.PeakBytes) / mib })
}

func ofProcess(process string, figure func(*Drain, Usage) float64) func(*Drain) float64 {
	return func(d *Drain) float64 {
		if u, ok := d.Used[process]; ok {
			return figure(d, u)
		}
		return none
	}
}

// RowsPerEvent is how many rows the database wrote.
func (d *Drain) RowsPerEvent() float64 {
	if d.Rows == notCounted {
		return none
	}
	return float64(d.Rows) / float64(d.Events)
}

// BytesPerPair is the size of the state.
func (d *Drain) BytesPerPair() float64 {
	if d.State.Pairs == 0 {
		return none
	}
	return float64(d.State.Bytes) / float64(d.State.Pairs)
}

// Latencies is a figure of a contender's latency at a part of its drain rate.
func (r *Report) Latencies(contender string, percent int, figure func(*LatencyLevel) float64) Stat {
	return over(r, func(run *Run) *LatencyLevel {
		if run.Latency != nil && run.Contender == contender {
			for i := range run.Latency.Levels {
				if level := &run.Latency.Levels[i]; level.Percent == percent {
					return level
				}
			}
		}
		return nil
	}, figure)
}

// Percents are the parts of the drain rate that latency was measured at, and the workload.
func (r *Report) Percents() (percents []int, load Workload) {
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

// Figure is a figure of a result as tables name it.
type Figure[T any] struct {
	Name, Unit string
	Of         func(T) float64
}

// LatencyFigures are the quantiles of each place where probes are looked for.
var LatencyFigures = slices.Concat(
	quantileFigures("Kafka", func(l *LatencyLevel) *Quantiles { return &l.Kafka }),
	quantileFigures("MySQL", func(l *LatencyLevel) *Quantiles { return &l.MySQL }),
	quantileFigures("the reader", func(l *LatencyLevel) *Quantiles { return l.Reader }), // nil where nobody looked
)

func quantileFigures(place string, of func(*LatencyLevel) *Quantiles) []Figure[*LatencyLevel] {
	figure := func(name string, quantile func(*Quantiles) float64) Figure[*LatencyLevel] {
		return Figure[*LatencyLevel]{"visible in " + place + ", " + name, "ms", func(l *LatencyLevel) float64 {
			if q := of(l); q != nil {
				return quantile(q)
			}
			return none
		}}
	}
	return []Figure[*LatencyLevel]{
		figure("p50", func(q *Quantiles) float64 { return q.P50 }),
		figure("p99", func(q *Quantiles) float64 { return q.P99 }),
		figure("p99.9", func(q *Quantiles) float64 { return q.P999 }),
	}
}

// Recoveries is a figure of the recoveries.
func (r *Report) Recoveries(figure func(*Recovery) float64) Stat {
	return over(r, func(run *Run) *Recovery { return run.Recovery }, figure)
}

// RecoveryFigures are those of a recovery.
var RecoveryFigures = []Figure[*Recovery]{
	{"pairs", "", func(rec *Recovery) float64 { return float64(rec.Pairs) }},
	{"records of the state table's topic", "", func(rec *Recovery) float64 { return float64(rec.Records) }},
	{"seconds", "", func(rec *Recovery) float64 { return rec.Seconds }},
	{"pairs a second", "", func(rec *Recovery) float64 { return rec.EntriesPerSecond }},
	{"resident memory when ready, MiB", "", func(rec *Recovery) float64 { return float64(rec.RSSBytes) / mib }},
	{"peak of it until then, MiB", "", func(rec *Recovery) float64 { return float64(rec.PeakBytes) / mib }},
	{"resident memory of the process that had drained the events, MiB", "",
		func(rec *Recovery) float64 { return float64(rec.Drained.RSSBytes) / mib }},
	{"state on disk after compaction, bytes a pair", "",
		func(rec *Recovery) float64 { return rec.Drained.BytesPerPair() }},
}

// Accepting is a figure of one of the producer's endpoints.
func (r *Report) Accepting(endpoint int, figure func(*producer.Endpoint) float64) Stat {
	return over(r, func(run *Run) *producer.Endpoint {
		if run.Producer == nil {
			return nil
		}
		return run.Producer.Endpoints()[endpoint]
	}, figure)
}

// Accepted is the workload that the producer was measured with, and what it came to first; nil if it was not.
func (r *Report) Accepted() (Workload, *producer.Result) {
	for _, run := range r.Runs {
		if run.Producer != nil {
			return run.Load, run.Producer
		}
	}
	return Workload{}, nil
}

// AcceptingFigures are those of an endpoint.
var AcceptingFigures = []Figure[*producer.Endpoint]{
	{"highest rate", "likes/s", func(e *producer.Endpoint) float64 { return e.Capacity.LikesPerSecond }},
	{"p50 at half of it", "ms", func(e *producer.Endpoint) float64 { return e.Half.P50Ms }},
	{"p99 at half of it", "ms", func(e *producer.Endpoint) float64 { return e.Half.P99Ms }},
	{"p99.9 at half of it", "ms", func(e *producer.Endpoint) float64 { return e.Half.P999Ms }},
}
