package bench

import (
	"fmt"
	"math"
	"slices"

	"kudos/bench/producer"
)

// Stat summarizes a figure over the rounds.
type Stat struct {
	Median, Least, Most float64
	Rounds              int
}

// StatOf summarizes values. It is empty if there are none.
func StatOf(values []float64) Stat {
	if len(values) == 0 {
		return Stat{}
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return Stat{Median: (values[(n-1)/2] + values[n/2]) / 2, Least: values[0], Most: values[n-1], Rounds: n}
}

// With formats the figure with its unit: the median and, over several rounds, least and most. Empty without a value.
func (s Stat) With(unit string) string {
	switch {
	case s.Rounds == 0:
		return ""
	case s.Rounds == 1 || s.Least == s.Most:
		return Number(s.Median) + unit
	}
	return fmt.Sprintf("%s%s (%s–%s)", Number(s.Median), unit, Number(s.Least), Number(s.Most))
}

// Number formats a number with three significant digits and commas between thousands.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsInf(a, 0):
		return "∞"
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

var none = math.NaN() // the figure of a run that does not have it

const mib = 1 << 20

// over summarizes a figure over all runs that have the result, leaving out NaN.
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

// Drains summarizes a figure of a contender's drains of a shape.
func (r *Report) Drains(shape, contender string, figure func(*Drain) float64) Stat {
	return over(r, func(run *Run) *Drain {
		if run.Label() != contender || run.Load.Shape.Name != shape {
			return nil
		}
		return run.Drain
	}, figure)
}

// Drained returns the distinct drain workloads, in the order of the runs.
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

// PeakMiB is the peak memory of a process.
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

// RowsPerEvent is how many rows the database wrote per event.
func (d *Drain) RowsPerEvent() float64 {
	if d.Rows == notCounted {
		return none
	}
	return float64(d.Rows) / float64(d.Events)
}

// BytesPerPair is the size of the contender's state per pair.
func (d *Drain) BytesPerPair() float64 {
	if d.State.Pairs == 0 {
		return none
	}
	return float64(d.State.Bytes) / float64(d.State.Pairs)
}

// Latencies summarizes a figure of a contender's latency at a load, which LatencyLevel.Load names.
func (r *Report) Latencies(contender, load string, figure func(*LatencyLevel) float64) Stat {
	return over(r, func(run *Run) *LatencyLevel {
		if run.Latency != nil && run.Label() == contender {
			for i := range run.Latency.Levels {
				if level := &run.Latency.Levels[i]; level.Load() == load {
					return level
				}
			}
		}
		return nil
	}, figure)
}

// LatencyLoads returns the loads at which latency was measured, in the order of the runs.
func (r *Report) LatencyLoads() (loads []string) {
	for _, run := range r.Runs {
		if run.Latency != nil {
			for _, level := range run.Latency.Levels {
				if load := level.Load(); load != "" && !slices.Contains(loads, load) {
					loads = append(loads, load)
				}
			}
		}
	}
	return loads
}

// Sustained summarizes a figure of the runs that found a contender's sustainable rate.
func (r *Report) Sustained(contender string, figure func(*Latency) float64) Stat {
	return over(r, func(run *Run) *Latency {
		if run.Label() != contender || run.Latency == nil || run.Latency.Sustainable == nil {
			return nil
		}
		return run.Latency
	}, figure)
}

// SustainableFigures are the figures of a sustainable rate that reports show.
var SustainableFigures = []Figure[*Latency]{
	{"sustainable rate", "events/s", func(l *Latency) float64 { return l.Sustainable.EventsPerSecond }},
	{"drain rate", "events/s", func(l *Latency) float64 { return l.DrainEventsPerSecond }},
	{"share of the drain rate", "%", func(l *Latency) float64 {
		return l.Sustainable.EventsPerSecond / l.DrainEventsPerSecond * 100
	}},
	{"visible in MySQL at that rate, p99", "ms", func(l *Latency) float64 { return l.Sustainable.MySQL.P99 }},
	{"resolution", "%", func(l *Latency) float64 { return (l.Sustainable.Resolution - 1) * 100 }},
}

// Figure is a figure of a result, with the name and unit that tables show.
type Figure[T any] struct {
	Name, Unit string
	Of         func(T) float64
}

// LatencyFigures are what reports show at each load. Infinity: the contender is behind, it does not keep up.
var LatencyFigures = slices.Concat(
	[]Figure[*LatencyLevel]{{"sent", "events/s", func(l *LatencyLevel) float64 { return l.EventsPerSecond }}},
	quantileFigures("Kafka", func(l *LatencyLevel) *Quantiles { return &l.Kafka }),
	quantileFigures("MySQL", func(l *LatencyLevel) *Quantiles { return &l.MySQL }),
	quantileFigures("the reader", func(l *LatencyLevel) *Quantiles { return l.Reader }), // may be nil
	quantileFigures("the live stream", func(l *LatencyLevel) *Quantiles { return l.Live }),
	quantileFigures("MySQL with the reader", func(l *LatencyLevel) *Quantiles { return l.MySQLWithReader }),
	[]Figure[*LatencyLevel]{cpuShare("processor", ContenderProcess), cpuShare("sender", SenderProcess)},
)

func quantileFigures(place string, of func(*LatencyLevel) *Quantiles) []Figure[*LatencyLevel] {
	figure := func(name string, quantile func(*Quantiles) float64) Figure[*LatencyLevel] {
		return Figure[*LatencyLevel]{"visible in " + place + ", " + name, "ms", func(l *LatencyLevel) float64 {
			switch q := of(l); {
			case q == nil || q.Probes == 0 && !q.Behind:
				return none
			case q.Behind:
				return math.Inf(1)
			default:
				return quantile(q)
			}
		}}
	}
	return []Figure[*LatencyLevel]{figure("p50", func(q *Quantiles) float64 { return q.P50 }),
		figure("p99", func(q *Quantiles) float64 { return q.P99 })}
}

// cpuShare is the share of a core that a process used while events were sent, without a reader.
func cpuShare(name, process string) Figure[*LatencyLevel] {
	return Figure[*LatencyLevel]{"CPU of the " + name, "% of a core", func(l *LatencyLevel) float64 {
		if used, ok := l.Used[process]; ok {
			return used.CPUSeconds / l.Seconds * 100
		}
		return none
	}}
}

// AfterKill is KilledSeconds, which earlier reports lack.
func (rec *Recovery) AfterKill() float64 {
	if rec.KilledSeconds == 0 {
		return none
	}
	return rec.KilledSeconds
}

// Recoveries summarizes a figure of the recoveries.
func (r *Report) Recoveries(figure func(*Recovery) float64) Stat {
	return over(r, func(run *Run) *Recovery { return run.Recovery }, figure)
}

// RecoveryFigures are the figures of a recovery that reports show.
var RecoveryFigures = []Figure[*Recovery]{
	{"pairs", "", func(rec *Recovery) float64 { return float64(rec.Pairs) }},
	{"records of the state table's topic", "", func(rec *Recovery) float64 { return float64(rec.Records) }},
	{"seconds", "", func(rec *Recovery) float64 { return rec.Seconds }},
	{"pairs per second", "", func(rec *Recovery) float64 { return rec.EntriesPerSecond }},
	{"after SIGKILL, with local state: seconds from the assignment", "", (*Recovery).AfterKill},
	{"resident memory when ready, MiB", "", func(rec *Recovery) float64 { return float64(rec.RSSBytes) / mib }},
	{"peak memory until then, MiB", "", func(rec *Recovery) float64 { return float64(rec.PeakBytes) / mib }},
	{"resident memory of the processor that drained the events, MiB", "",
		func(rec *Recovery) float64 { return float64(rec.Drained.RSSBytes) / mib }},
	{"state on disk after compaction, bytes per pair", "",
		func(rec *Recovery) float64 { return rec.Drained.BytesPerPair() }},
}

// Accepting summarizes a figure of one of the producer's endpoints.
func (r *Report) Accepting(endpoint int, figure func(*producer.Endpoint) float64) Stat {
	return over(r, func(run *Run) *producer.Endpoint {
		if run.Producer == nil {
			return nil
		}
		return run.Producer.Endpoints()[endpoint]
	}, figure)
}

// Accepted returns the first run that measured a producer, nil if there is none.
func (r *Report) Accepted() *Run {
	for i := range r.Runs {
		if r.Runs[i].Producer != nil {
			return &r.Runs[i]
		}
	}
	return nil
}

// AcceptingFigures are the figures of an endpoint that reports show.
var AcceptingFigures = []Figure[*producer.Endpoint]{
	{"highest rate", "likes/s", func(e *producer.Endpoint) float64 { return e.Capacity.LikesPerSecond }},
	{"p50 at half the highest rate", "ms", func(e *producer.Endpoint) float64 { return e.Half.P50Ms }},
	{"p99 at half the highest rate", "ms", func(e *producer.Endpoint) float64 { return e.Half.P99Ms }},
	{"p99.9 at half the highest rate", "ms", func(e *producer.Endpoint) float64 { return e.Half.P999Ms }},
}
