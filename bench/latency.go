package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"kudos/bench/producer"
)

// LatencyPlan is how latency is measured: the contender drains a topic, so that it has state and its rate is known, and
// then gets events at percentages of that rate.
type LatencyPlan struct {
	Load     Workload
	Percents []int         // of the drain rate
	Warmup   time.Duration // of each level, not measured
	Measure  time.Duration // of each level
	// Probes is the highest number of probes per second, and at most one event in ten. A probe is its post's only like.
	Probes int
}

// DefaultLatencyPlan is the plan of published reports.
func DefaultLatencyPlan(seed uint64) *LatencyPlan {
	shape, _ := ShapeNamed("skewed-1000") // always found
	return &LatencyPlan{
		Load: Workload{Seed: seed, Shape: shape, Events: 2_000_000}, Percents: []int{10, 50, 80},
		Warmup: 3 * time.Second, Measure: 20 * time.Second, Probes: 500,
	}
}

// Latency is the time from publishing an event until its count is visible.
type Latency struct {
	DrainEventsPerSecond float64        `json:"drain_events_per_second"`
	Levels               []LatencyLevel `json:"levels"`
}

// LatencyLevel is the latency at one rate.
type LatencyLevel struct {
	Percent         int     `json:"percent"` // of the drain rate
	EventsPerSecond float64 `json:"events_per_second"`
	Events          int     `json:"events"`
	// Kafka is the time from when an event was due to be sent until the sender got Kafka's acknowledgment,
	Kafka Quantiles `json:"kafka"`
	// and MySQL the time until a query returned its count.
	MySQL  Quantiles  `json:"mysql"`
	Reader *Quantiles `json:"reader,omitempty"` // measured in a second run at the same rate, with a reader running too

	seen Quantiles // measured by watch
}

// Quantiles of latencies, in milliseconds.
type Quantiles struct {
	Probes int     `json:"probes"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	P999   float64 `json:"p999_ms"`
	Max    float64 `json:"max_ms"`
}

func quantiles(took []time.Duration) Quantiles {
	q := Quantiles{Probes: len(took)}
	q.P50, q.P99, q.P999, q.Max = producer.Percentiles(took)
	return q
}

func (q *Quantiles) short() string { return fmt.Sprintf("p50 %.0f ms, p99 %.0f ms", q.P50, q.P99) }

// String returns a one-line summary.
func (l *Latency) String() string {
	var levels []string
	for _, level := range l.Levels {
		text := fmt.Sprintf("%d %% (%.0f events/s): in Kafka %s, in MySQL %s", level.Percent, level.EventsPerSecond,
			level.Kafka.short(), level.MySQL.short())
		if level.Reader != nil {
			text += ", in the reader " + level.Reader.short()
		}
		levels = append(levels, text)
	}
	return strings.Join(levels, "; ")
}

// latencyRun is the state that the levels of a run share.
type latencyRun struct {
	*run
	drainRate float64
	probes    int // sent so far
}

// measureLatency measures MySQL first, without a reader, as for any other contender. For kudos it then starts a reader,
// which takes its share of the machine, and repeats all levels to measure there.
func (r *run) measureLatency(ctx context.Context, into *Run) error {
	d, err := r.fillAndDrain(ctx)
	if err != nil {
		return err
	}
	m := &latencyRun{run: r, drainRate: d.EventsPerSecond}
	levels, err := m.levels(ctx, "MySQL", askMySQL(r.servers.db))
	if err != nil {
		return err
	}
	for i := range levels {
		levels[i].MySQL = levels[i].seen
	}
	if k, ok := r.contender.(*Kudos); ok {
		if err := m.inReader(ctx, k, levels); err != nil {
			return err
		}
	}
	if err := checkCounts(ctx, r.servers.db, r.stream, m.probes); err != nil {
		return err
	}
	into.Latency = &Latency{DrainEventsPerSecond: d.EventsPerSecond, Levels: levels}
	p := r.process
	r.process = nil
	_, err = p.Stop()
	return err
}

func (m *latencyRun) inReader(ctx context.Context, k *Kudos, into []LatencyLevel) (err error) {
	dir := filepath.Join(m.dir, "reader")
	reader, addr, err := k.serve(ctx, m.servers, "reader", dir, "KUDOS_READER_STATE_DIR="+filepath.Join(dir, "state"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.Terminate(StopTimeout)) }()
	levels, err := m.levels(ctx, "the reader", askReader(addr))
	if err != nil {
		return err
	}
	for i := range into {
		into[i].Reader = &levels[i].seen
	}
	return nil
}

// levels sends events at each percentage of the rate, and waits after each until the contender has counted them.
func (m *latencyRun) levels(ctx context.Context, where string, ask ask) (levels []LatencyLevel, err error) {
	for _, percent := range m.plan.Latency.Percents {
		m.progress(fmt.Sprintf("latency in %s at %d %% of %.0f events/s", where, percent, m.drainRate))
		level, err := m.hold(ctx, m.drainRate*float64(percent)/100, where, ask)
		if err != nil {
			return nil, fmt.Errorf("at %d %% of the drain rate: %w", percent, err)
		}
		level.Percent = percent
		levels = append(levels, level)
		countCtx, cancel := context.WithTimeout(ctx, startTimeout)
		_, err = m.process.Counted(countCtx, int64(m.stream.Events()+m.probes))
		cancel()
		if err != nil {
			return nil, fmt.Errorf("after %d %% of the drain rate: %w", percent, err)
		}
	}
	return levels, nil
}
