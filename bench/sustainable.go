package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"kudos/bench/producer"
)

const (
	// A rate is sustained if a contender is not behind, p99 from publishing to MySQL is at most sustainedP99, and latency
	// does not rise by more than sustainedRise: a queue that grows is no constant rate, however short it still is.
	sustainedP99  = time.Second
	sustainedRise = sustainedP99 / 10
	parts         = 10  // of a pass, whose medians show a trend
	leastRate     = 100 // in events per second: a slower contender is aborted
)

// Sustainable is the highest constant rate at which latency does not rise, with the sender on the same machine
// (Karimov et al., Benchmarking Distributed Stream Data Processing Systems, ICDE 2018).
type Sustainable struct {
	EventsPerSecond float64 `json:"events_per_second"`
	P99LimitMs      float64 `json:"p99_limit_ms"`
	Resolution      float64 `json:"resolution"` // the factor to within which the rate was found
	Seconds         float64 `json:"seconds"`    // how long that rate was held in the end
	Steps           []Step  `json:"steps"`      // all rates tried, in order
}

// Step is one rate, held for a while.
type Step struct {
	EventsPerSecond float64   `json:"events_per_second"`
	Seconds         float64   `json:"seconds"`
	MySQL           Quantiles `json:"mysql"`
	RiseMs          float64   `json:"rise_ms"` // of latency over the pass
	Sustained       bool      `json:"sustained"`
}

// sustainable searches the highest sustainable rate with short passes, then holds it for long, and lower ones if needed.
func (m *latencyRun) sustainable(ctx context.Context) (*Sustainable, error) {
	s := &Sustainable{P99LimitMs: milliseconds(sustainedP99), Resolution: producer.Resolution}
	rate, err := producer.Highest(m.drainRate/2, leastRate, m.drainRate, func(rate float64) (bool, error) {
		for range 2 { // again, since the machine may have been busy otherwise
			if ok, err := m.try(ctx, s, rate, m.plan.Probe); ok || err != nil {
				return ok, err
			}
		}
		return false, nil
	})
	for ; err == nil && rate >= leastRate; rate /= s.Resolution {
		var ok bool
		if ok, err = m.try(ctx, s, rate, m.plan.Confirm); ok {
			s.EventsPerSecond, s.Seconds = rate, m.plan.Confirm.Seconds()
			return s, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("no rate above %d events/s is sustainable: %+v", leastRate, s.Steps)
	}
	return nil, err
}

// try holds a rate and reports whether it is sustained. The drain rate is not: then there was no sender.
func (m *latencyRun) try(ctx context.Context, s *Sustainable, rate float64, d time.Duration) (bool, error) {
	if rate >= m.drainRate {
		return false, nil
	}
	m.progress(fmt.Sprintf("is a rate of %.0f events/s sustainable for %v?", rate, d))
	p, err := m.holdAndCount(ctx, rate, d, m.mysql())
	if err != nil {
		return false, err
	}
	step := Step{EventsPerSecond: rate, Seconds: d.Seconds(), MySQL: p.at[0], RiseMs: milliseconds(p.rise)}
	step.Sustained = !step.MySQL.Behind && step.MySQL.P99 <= s.P99LimitMs && p.rise <= sustainedRise
	s.Steps = append(s.Steps, step)
	return step.Sustained, nil
}

// rise estimates how much latency grows from due time `from` for a duration d: the median slope between the medians of
// equal parts (Theil–Sen), times d. Single stalls do not matter.
func rise(delays []delay, from, d time.Duration) time.Duration {
	var in [parts][]time.Duration
	for _, x := range delays {
		if i := int((x.due - from) * parts / d); x.due >= from && i < parts {
			in[i] = append(in[i], x.took)
		}
	}
	var slopes []time.Duration // from part to part
	for j := range in {
		slices.Sort(in[j])
		for i := range j {
			if len(in[i]) > 0 && len(in[j]) > 0 {
				slopes = append(slopes, (in[j][len(in[j])/2]-in[i][len(in[i])/2])/time.Duration(j-i))
			}
		}
	}
	if len(slopes) == 0 {
		return 0
	}
	slices.Sort(slopes)
	return slopes[len(slopes)/2] * parts
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
