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

// LatencyPlan is how latency is measured: a topic is drained, so that the contender has its state and its rate is
// known; then events come at parts of that rate.
type LatencyPlan struct {
	Load     Workload
	Percents []int         // of the drain rate
	Warmup   time.Duration // of each level, not measured
	Measure  time.Duration // of each level
	// Probes a second, at most: likes of a post of their own. One event in ten is the most that they are.
	Probes int
}

// DefaultLatencyPlan is what is reported.
func DefaultLatencyPlan(seed uint64) *LatencyPlan {
	shape, _ := ShapeNamed("skewed-1000") // one of Shapes
	return &LatencyPlan{
		Load: Workload{Seed: seed, Shape: shape, Events: 2_000_000}, Percents: []int{10, 50, 80},
		Warmup: 3 * time.Second, Measure: 20 * time.Second, Probes: 500,
	}
}

// Latency is how long it takes from publishing an event until its count is visible.
type Latency struct {
	DrainEventsPerSecond float64        `json:"drain_events_per_second"`
	Levels               []LatencyLevel `json:"levels"`
}

// LatencyLevel is of one rate.
type LatencyLevel struct {
	Percent         int     `json:"percent"` // of the drain rate
	EventsPerSecond float64 `json:"events_per_second"`
	Events          int     `json:"events"`
	// From the moment that an event was to be sent until the sender knew that Kafka has it,
	Kafka Quantiles `json:"kafka"`
	// and until its count was in an answer.
	MySQL Quantiles `json:"mysql"`
	// Reader is of the same rate once more, with a reader beside.
	Reader *Quantiles `json:"reader,omitempty"`

	seen Quantiles // by the watcher
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

// String is the result in a line.
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

// latencyRun is what the levels of a run share.
type latencyRun struct {
	*run
	drainRate float64
	probes    int // that were sent
}

// measureLatency looks in MySQL first, with nothing beside that a peer would not have beside it; then kudos's reader is
// started, which takes its share of the machine, and all is done once more, to look there.
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

// inReader has the same levels once more, with a reader.
func (m *latencyRun) inReader(ctx context.Context, k *Kudos, into []LatencyLevel) (err error) {
	dir := filepath.Join(m.dir, "reader")
	reader, addr, err := k.serve(ctx, m.servers, "reader", dir,
		"KUDOS_READER_STATE_DIR="+filepath.Join(dir, "state"))
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

// levels sends events at each part of the rate, and lets the contender come to the end of them.
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
