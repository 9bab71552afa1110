package bench

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"kudos/bench/producer"
)

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
	P99LimitMs      float64        `json:"p99_limit_ms"`
	Resolution      float64        `json:"resolution"` // the factor to within which the rate was found
	Seconds         float64        `json:"seconds"`    // how long that rate was held in the end
	Steps           []LatencyLevel `json:"steps"`      // all rates tried, in order; the last one is sustained
}

// sustainable searches the highest sustainable rate with short passes, then holds it for long, or lower ones.
func (m *latencyRun) sustainable(ctx context.Context) (*Sustainable, error) {
	s := &Sustainable{P99LimitMs: sustainedP99, Resolution: producer.Resolution}
	rate, err := producer.Highest(m.drainRate/2, leastRate, m.drainRate, func(rate float64) (bool, error) {
		ok, err := m.try(ctx, s, rate, m.plan.Probe)
		if !ok && err == nil { // again, since the machine may have been busy otherwise
			ok, err = m.try(ctx, s, rate, m.plan.Probe)
		}
		return ok, err
	})
	for ; err == nil && rate >= leastRate; rate /= s.Resolution {
		var ok bool
		if ok, err = m.try(ctx, s, rate, m.plan.Confirm); ok {
			s.EventsPerSecond, s.Seconds = rate, m.plan.Confirm.Seconds()
			return s, nil
		}
	}
	return nil, cmp.Or(err, fmt.Errorf("no rate above %d events/s is sustainable: %+v", leastRate, s.Steps))
}

// try holds a rate and reports whether it is sustained. The drain rate is not: then there was no sender.
func (m *latencyRun) try(ctx context.Context, s *Sustainable, rate float64, d time.Duration) (bool, error) {
	if rate >= m.drainRate {
		return false, nil
	}
	m.progress(fmt.Sprintf("is a rate of %.0f events/s sustainable for %v?", rate, d))
	step, at := LatencyLevel{planned: rate}, m.mysql()
	if err := m.hold(ctx, &step, d, at); err != nil {
		return false, fmt.Errorf("at %.0f events/s: %w", rate, err)
	}
	step.MySQL = at.Quantiles
	s.Steps = append(s.Steps, step)
	return !at.Behind && at.P99 <= sustainedP99 && step.RiseMs <= sustainedRise, nil
}
