package bench

import "fmt"

// target is a figure that the project wants to reach.
type target struct {
	what    string
	want    float64
	most    bool // want is the most that it may be, otherwise the least
	unit    string
	reached stat
}

func (t target) met() bool {
	if t.most {
		return t.reached.median <= t.want
	}
	return t.reached.median >= t.want
}

// targets are those that were set before anything was measured.
func (r *Report) targets() []target {
	ratio := func(shape, peer string, want float64) target {
		return target{what: fmt.Sprintf("%s: kudos by %s", shape, peer), want: want, unit: "×", reached: r.ratio(shape, peer)}
	}
	p99 := func(q *Quantiles) float64 { return q.P99 }
	mysql, reader := places[1].quantile(p99), places[2].quantile(p99)
	return []target{
		ratio("skewed-1000", "redis", 3),
		ratio("skewed-1000", "goka", 8),
		ratio("skewed-1000", "streams", 8),
		ratio("skewed-1000", "sql", 100),
		{what: "hot, one partition: events/s", want: 500_000, reached: r.drains("hot", kudosName, eventsPerSecond)},
		ratio("hot", "redis", 2),
		ratio("uniform", "redis", 1),
		{what: "publish to visible in MySQL, p99 at 50 % load", want: 150, most: true, unit: " ms", reached: r.latencies(kudosName, 50, mysql)},
		{what: "publish to visible in the reader, p99 at 50 % load", want: 150, most: true, unit: " ms", reached: r.latencies(kudosName, 50, reader)},
		{what: "like accepted, p99 at 50 % of capacity", want: 100, most: true, unit: " ms", reached: r.accepting(endpoints[0], halfP99)},
		{what: "state on disk after compaction, bytes a pair (recovery's state)", want: 24, most: true, reached: r.recoveries(func(rec *Recovery) (float64, bool) { return bytesPerPair(&rec.Drained) })},
		{what: "recovery, entries/s", want: 1_000_000, reached: r.recoveries(func(rec *Recovery) (float64, bool) { return rec.EntriesPerSecond, true })},
		{what: "resident memory with recovery's state", want: 1024, most: true, unit: " MiB", reached: r.recoveries(mostRSS)},
	}
}
