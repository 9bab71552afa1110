package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// LatencyPlan is how latency is measured: a topic is drained, so that the contender has its state and its rate is known;
// then events come at parts of that rate.
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

// Quick makes it a trial.
func (l *LatencyPlan) Quick() {
	l.Load.Events, l.Percents, l.Warmup, l.Measure = 200_000, []int{50}, time.Second, 2*time.Second
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
	slices.Sort(took)
	at := func(perMille int) float64 {
		if len(took) == 0 {
			return 0
		}
		// The smallest one that so many are not above.
		i := max(0, (len(took)*perMille+999)/1000-1)
		return float64(took[i]) / float64(time.Millisecond)
	}
	return Quantiles{Probes: len(took), P50: at(500), P99: at(990), P999: at(999), Max: at(1000)}
}

// String is the result in a line.
func (l *Latency) String() string {
	var levels []string
	for _, level := range l.Levels {
		text := fmt.Sprintf("%d %% (%.0f events/s): in Kafka p50 %.0f ms, p99 %.0f ms, in MySQL p50 %.0f ms, p99 %.0f ms", level.Percent, level.EventsPerSecond, level.Kafka.P50, level.Kafka.P99, level.MySQL.P50, level.MySQL.P99)
		if level.Reader != nil {
			text += fmt.Sprintf(", in the reader p50 %.0f ms, p99 %.0f ms", level.Reader.P50, level.Reader.P99)
		}
		levels = append(levels, text)
	}
	return strings.Join(levels, "; ")
}

func (p *Plan) latency(ctx context.Context, r *run, into *Run) error {
	return on(ctx, p.Site, r, func() (err error) {
		into.Latency, err = measureLatency(ctx, r, p.Latency)
		return err
	})
}

// measureLatency looks in MySQL first, with nothing beside that a peer would not have beside it; then kudos's reader is
// started, which takes its share of the machine, and all is done once more, to look there.
func measureLatency(ctx context.Context, r *run, plan *LatencyPlan) (l *Latency, err error) {
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	d, err := r.drain(ctx)
	if err != nil {
		return nil, err
	}
	db, err := r.servers.open()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	l = &Latency{DrainEventsPerSecond: d.EventsPerSecond}
	m := &latencyRun{run: r, plan: plan, rate: d.EventsPerSecond, probes: map[uint64]bool{}}
	if l.Levels, err = m.levels(ctx, newWatcher("MySQL", askMySQL(db))); err != nil {
		return nil, err
	}
	for i := range l.Levels {
		l.Levels[i].MySQL = l.Levels[i].seen
	}
	if k, ok := r.contender.(*Kudos); ok {
		if err := m.inReader(ctx, k, l.Levels); err != nil {
			return nil, err
		}
	}
	if err := checkCounts(ctx, db, r.stream, m.probes); err != nil {
		return nil, err
	}
	p := r.process
	r.process = nil
	_, err = p.Stop()
	return l, err
}

// latencyRun is what the levels of a run share.
type latencyRun struct {
	*run
	plan   *LatencyPlan
	rate   float64         // of the drain
	probes map[uint64]bool // all that were sent
}

// inReader has the same levels once more, with a reader.
func (m *latencyRun) inReader(ctx context.Context, k *Kudos, into []LatencyLevel) (err error) {
	reader, err := k.startReader(ctx, m.servers, filepath.Join(m.dir, "reader"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.process.stop()) }()
	levels, err := m.levels(ctx, newWatcher("the reader", reader.ask))
	if err != nil {
		return err
	}
	for i := range into {
		into[i].Reader = &levels[i].seen
	}
	return nil
}

// levels sends events at each part of the rate, and lets the contender come to the end of them.
func (m *latencyRun) levels(ctx context.Context, w *watcher) (levels []LatencyLevel, err error) {
	for _, percent := range m.plan.Percents {
		m.progress(fmt.Sprintf("latency in %s at %d %% of %.0f events/s", w.name, percent, m.rate))
		loop := openLoop{
			servers: m.servers, stream: m.stream, partitions: m.load.Shape.Partitions,
			rate: m.rate * float64(percent) / 100, plan: m.plan, watcher: w, firstProbe: firstProbe + uint64(len(m.probes)),
		}
		level, err := loop.run(ctx)
		if err != nil {
			return nil, fmt.Errorf("at %d %% of the drain rate: %w", percent, err)
		}
		level.Percent = percent
		levels = append(levels, *level)
		for n := range uint64(loop.probes) {
			m.probes[loop.firstProbe+n] = true
		}
		countCtx, cancel := context.WithTimeout(ctx, startTimeout)
		_, err = m.process.Counted(countCtx, int64(m.stream.Events()+len(m.probes)))
		cancel()
		if err != nil {
			return nil, fmt.Errorf("after %d %% of the drain rate: %w", percent, err)
		}
	}
	return levels, nil
}
