package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"kudos/bench/producer"
)

// LatencyPlan is how latency is measured: the contender drains a topic, so that it has state and its rate is known, and
// then gets events at constant rates.
type LatencyPlan struct {
	Load     Workload
	Rates    []int // events per second
	Percents []int // of the sustainable rate, which is measured before; without percentages it is not
	// Warmup, not measured, and Measure are how long each rate is held; Sustain, in the search for the sustainable one.
	Warmup, Measure, Sustain time.Duration
	Probes                   int  // the highest number of probes per second, and at most one event in ten
	Reader                   bool // repeat with a reader running, if the contender is kudos
}

// DefaultLatencyPlans are the plans of published reports: shares of the sustainable rate, and fixed rates on one post.
func DefaultLatencyPlans(seed uint64) (shares, fixed *LatencyPlan) {
	plan := func(name string) *LatencyPlan {
		shape, _ := ShapeNamed(name) // always found
		p := &LatencyPlan{Load: Workload{Seed: seed, Shape: shape, Events: 2_000_000}, Probes: 500, Reader: true}
		p.HoldEach(20 * time.Second)
		return p
	}
	shares, fixed = plan("skewed-1000"), plan("hot")
	shares.Percents, fixed.Rates = []int{10, 50, 80}, []int{1_000, 20_000, 100_000}
	return shares, fixed
}

// HoldEach sets how long latency is measured at each rate. In the search for the sustainable rate, each is held three
// times as long.
func (p *LatencyPlan) HoldEach(d time.Duration) {
	p.Warmup, p.Measure, p.Sustain = min(d/4, 3*time.Second), d, 3*d
}

// Latency is the time from publishing an event until its count is visible.
type Latency struct {
	DrainEventsPerSecond float64        `json:"drain_events_per_second"`
	Sustainable          *Sustainable   `json:"sustainable,omitempty"`
	Levels               []LatencyLevel `json:"levels"`
}

// LatencyLevel is the latency at one rate. In earlier reports it has neither Rate nor Percent, but a share of the drain
// rate; these are not shown.
type LatencyLevel struct {
	Rate            int     `json:"rate,omitempty"`                   // a fixed one
	Percent         int     `json:"percent_of_sustainable,omitempty"` // or a share
	EventsPerSecond float64 `json:"events_per_second"`                // reached
	Events          int     `json:"events"`
	// Kafka is the time from when an event was due to be sent until the sender got Kafka's acknowledgment,
	Kafka Quantiles `json:"kafka"`
	// and MySQL the time until a query returned its count.
	MySQL Quantiles `json:"mysql"`
	// Used is each process's cost meanwhile, by name: ContenderProcess, SenderProcess and the servers.
	Seconds float64          `json:"seconds,omitempty"`
	Used    map[string]Usage `json:"used,omitempty"`
	// Measured in a second run at the same rate, with a reader running too: Reader is the time until its API returned
	// the count, Live until its live stream did, and MySQLWithReader until MySQL did.
	Reader          *Quantiles `json:"reader,omitempty"`
	Live            *Quantiles `json:"live,omitempty"`
	MySQLWithReader *Quantiles `json:"mysql_with_reader,omitempty"`
	RiseMs          float64    `json:"rise_ms,omitempty"` // how much the latency in MySQL has grown

	planned float64 // events per second
}

// Load names the rate as tables do; it is empty for a share of the drain rate.
func (l *LatencyLevel) Load() string {
	switch {
	case l.Rate > 0:
		return Number(float64(l.Rate)) + "/s"
	case l.Percent > 0:
		return fmt.Sprintf("%d %%", l.Percent)
	}
	return ""
}

// Quantiles of latencies, in milliseconds.
type Quantiles struct {
	Probes int     `json:"probes"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	P999   float64 `json:"p999_ms"`
	Max    float64 `json:"max_ms"`
	Behind bool    `json:"behind,omitempty"` // the contender did not keep up; the figures do not count
}

func quantiles(took []time.Duration) Quantiles {
	q := Quantiles{Probes: len(took)}
	q.P50, q.P99, q.P999, q.Max = producer.Percentiles(took)
	return q
}

// latencyRun is the state that the passes of a run share.
type latencyRun struct {
	*run
	plan      *LatencyPlan
	drainRate float64
	posts     []uint64         // of the probes
	probes    map[uint64]int64 // sent so far, by post
	sent      int64            // events
}

// measureLatency measures MySQL first, without a reader, as for any other contender. For kudos it then starts a reader,
// which takes its share of the machine, and repeats all levels to measure there.
func (r *run) measureLatency(ctx context.Context, plan *LatencyPlan, into *Run) error {
	d, err := r.fillAndDrain(ctx)
	if err != nil {
		return err
	}
	m := &latencyRun{run: r, plan: plan, drainRate: d.EventsPerSecond, posts: probePosts(r.load.Shape.Partitions),
		probes: map[uint64]int64{}, sent: d.Events}
	l := &Latency{DrainEventsPerSecond: d.EventsPerSecond}
	if len(plan.Percents) > 0 {
		if l.Sustainable, err = m.sustainable(ctx); err != nil {
			return err
		}
	}
	for _, percent := range plan.Percents {
		rate := l.Sustainable.EventsPerSecond * float64(percent) / 100
		l.Levels = append(l.Levels, LatencyLevel{Percent: percent, planned: rate})
	}
	for _, rate := range plan.Rates {
		l.Levels = append(l.Levels, LatencyLevel{Rate: rate, planned: float64(rate)})
	}
	for i := range l.Levels {
		at := m.mysql()
		if err := m.measure(ctx, &l.Levels[i], at); err != nil {
			return err
		}
		l.Levels[i].MySQL = at.Quantiles
	}
	if k, ok := r.contender.(*Kudos); ok && plan.Reader {
		into.Processes = append(into.Processes, "reader")
		if err := m.inReader(ctx, k, l.Levels); err != nil {
			return err
		}
	}
	if err := checkCounts(ctx, r.servers.db, r.stream, m.probes); err != nil {
		return err
	}
	into.Latency = l
	p := r.process
	r.process = nil
	_, err = p.Stop()
	return err
}

func (m *latencyRun) mysql() *place {
	ask := func(ctx context.Context, posts []uint64) (counts []likesOf, err error) {
		err = m.servers.db.SelectContext(ctx, &counts,
			"SELECT post_id, `count` FROM like_count WHERE post_id IN ("+joined(posts)+")")
		return counts, err
	}
	return &place{name: "MySQL", watch: every(lookForProbes, ask)}
}

// measure holds a level's rate, unless the contender cannot even drain events as fast.
func (m *latencyRun) measure(ctx context.Context, level *LatencyLevel, places ...*place) error {
	if level.MySQL.Behind || level.planned >= m.drainRate {
		for _, p := range places {
			p.Behind = true
		}
		return nil
	}
	m.progress(fmt.Sprintf("latency in %s at %s", places[0].name, level.Load()))
	if err := m.hold(ctx, level, m.plan.Measure, places...); err != nil {
		return fmt.Errorf("latency in %s at %s: %w", places[0].name, level.Load(), err)
	}
	return nil
}

func (m *latencyRun) inReader(ctx context.Context, k *Kudos, levels []LatencyLevel) (err error) {
	dir := filepath.Join(m.dir, "reader")
	reader, addr, err := k.serve(ctx, m.servers, "reader", dir, "KUDOS_READER_STATE_DIR="+filepath.Join(dir, "state"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reader.Terminate(StopTimeout)) }()
	for i := range levels {
		api := &place{name: "the reader", watch: every(lookForProbes, askReader(addr))}
		live := &place{name: "the live stream", watch: watchStream(addr)}
		inMySQL, again := m.mysql(), levels[i] // its own figures are those of the first pass
		if err := m.measure(ctx, &again, api, live, inMySQL); err != nil {
			return err
		}
		l := &levels[i]
		l.Reader, l.Live, l.MySQLWithReader = &api.Quantiles, &live.Quantiles, &inMySQL.Quantiles
	}
	return nil
}

const (
	// A rate is sustained if a contender is not behind, p99 from publishing to MySQL is at most sustainedP99, and
	// latency does not rise by more than sustainedRise: a queue that grows shows overload, however short it still is.
	sustainedP99  = 1000.0 // ms
	sustainedRise = 100.0  // ms
	leastRate     = 100    // in events per second: a slower contender is aborted
)

// Sustainable is the highest constant rate at which latency does not rise, with the sender on the same machine
// (Karimov et al., Benchmarking Distributed Stream Data Processing Systems, ICDE 2018).
type Sustainable struct {
	EventsPerSecond float64        `json:"events_per_second"`
	MySQL           Quantiles      `json:"mysql"` // at that rate
	P99LimitMs      float64        `json:"p99_limit_ms"`
	Resolution      float64        `json:"resolution"` // the factor to within which the rate was found
	Seconds         float64        `json:"seconds"`    // how long each rate was held
	Steps           []LatencyLevel `json:"steps"`      // all rates tried, in order
}

// sustainable searches the highest sustainable rate, from below: a rate that is too high leaves its events in the
// contender's state, and the compactions they cost to the next rate.
func (m *latencyRun) sustainable(ctx context.Context) (*Sustainable, error) {
	s := &Sustainable{P99LimitMs: sustainedP99, Resolution: producer.Resolution, Seconds: m.plan.Sustain.Seconds()}
	try := func(rate float64) (bool, error) { return m.try(ctx, s, rate) }
	rate, err := producer.Highest(m.drainRate/4, leastRate, m.drainRate, 1, try)
	if s.EventsPerSecond = rate; rate == 0 && err == nil {
		err = fmt.Errorf("no rate above %d events/s is sustainable: %+v", leastRate, s.Steps)
	}
	return s, err
}

// try holds a rate and reports whether it is sustained. The drain rate is not: then there was no sender.
func (m *latencyRun) try(ctx context.Context, s *Sustainable, rate float64) (bool, error) {
	if rate >= m.drainRate {
		return false, nil
	}
	m.progress(fmt.Sprintf("is a rate of %.0f events/s sustainable for %v?", rate, m.plan.Sustain))
	step, at := LatencyLevel{planned: rate}, m.mysql()
	if err := m.hold(ctx, &step, m.plan.Sustain, at); err != nil {
		return false, fmt.Errorf("at %.0f events/s: %w", rate, err)
	}
	step.MySQL = at.Quantiles
	s.Steps = append(s.Steps, step)
	ok := step.sustained()
	if ok {
		s.MySQL = at.Quantiles
	}
	return ok, nil
}

func (l *LatencyLevel) sustained() bool {
	return !l.MySQL.Behind && l.MySQL.P99 <= sustainedP99 && l.RiseMs <= sustainedRise
}
