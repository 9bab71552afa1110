package producer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"
)

const (
	// maxRate and minRate, in likes per second, bound the search.
	maxRate = 10_000_000.0
	minRate = 1.0
	// narrowings is how often the bracket, a factor of 2, is halved logarithmically.
	narrowings = 3
)

// Resolution is the factor to within which the highest rate is found: 2^(1/8), 9 %.
var Resolution = math.Exp2(1.0 / (1 << narrowings))

type search struct {
	options *Options
	log     *slog.Logger
	// at holds a rate for a while; load.hold outside of tests.
	at    func(ctx context.Context, likesPerSecond float64, d time.Duration) (Step, error)
	found *Endpoint
}

// run doubles the rate until it is not sustained, narrows the bracket, and holds half of the highest sustained rate.
func (s *search) run(ctx context.Context) error {
	// The warm-up opens connections and lets Kafka's JVM compile its hot paths.
	if _, err := s.hold(ctx, "warm-up", s.options.StartRate, s.options.StepFor); err != nil {
		return err
	}
	low, err := Highest(s.options.StartRate, minRate, maxRate, 2, func(rate float64) (bool, error) {
		step, err := s.hold(ctx, "step", rate, s.options.StepFor)
		if err != nil {
			return false, err
		}
		s.found.Steps = append(s.found.Steps, step)
		if step.Carried {
			s.found.Capacity = step
		}
		return step.Carried, nil
	})
	if err == nil && low == 0 {
		err = s.noCapacity()
	}
	if err != nil {
		return err
	}
	s.found.Half, err = s.hold(ctx, "half of the capacity", low/2, s.options.HoldFor)
	return err
}

// Highest returns the highest rate that is sustained, to within Resolution; 0 if it is not between least and most. It
// doubles or halves a rate until it has a bracket, and then halves the bracket logarithmically. tries is how often a
// rate that fails is tried: short ones may have failed because the machine was busy otherwise.
func Highest(start, least, most float64, tries int, sustained func(rate float64) (bool, error)) (float64, error) {
	low, high := 0.0, 0.0
	for i := 0; i < narrowings; {
		rate := start
		switch {
		case low > 0 && high > 0:
			rate = math.Sqrt(low * high)
			i++
		case low > 0:
			rate = low * 2
		case high > 0:
			rate = high / 2
		}
		if rate > most || rate < least {
			return 0, nil
		}
		ok, err := false, error(nil)
		for try := 0; try < tries && !ok && err == nil; try++ {
			ok, err = sustained(rate)
		}
		switch {
		case err != nil:
			return 0, err
		case ok:
			low = rate
		default:
			high = rate
		}
	}
	return low, nil
}

func (s *search) noCapacity() error {
	what := "no rate was tried"
	if n := len(s.found.Steps); n > 0 {
		last := s.found.Steps[n-1]
		what = fmt.Sprintf("at %.0f p99 was %.0f ms, %d requests were rejected and %d failed (%s)",
			last.PlannedLikesPerSecond, last.P99Ms, last.Refused, last.Failed, cmp.Or(last.FirstFailure, "none"))
	}
	return fmt.Errorf("no limit was found between %.0f and %.0f likes/s: %s; check that the producer is ready and "+
		"accepts likes", minRate, maxRate, what)
}

func (s *search) hold(ctx context.Context, what string, rate float64, d time.Duration) (Step, error) {
	step, err := s.at(ctx, rate, d)
	if err != nil {
		return Step{}, err
	}
	step.Carried = step.Refused+step.Failed+step.Unsent == 0 && step.P99Ms <= milliseconds(s.options.LatencyLimit)
	s.log.Info(what, "planned_likes_per_second", int64(rate), "likes_per_second", int64(step.LikesPerSecond),
		"carried", step.Carried, "refused", step.Refused, "failed", step.Failed, "unsent", step.Unsent,
		"p50_ms", step.P50Ms, "p99_ms", step.P99Ms, "p999_ms", step.P999Ms)
	return step, nil
}
