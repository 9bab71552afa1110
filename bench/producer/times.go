package producer

import (
	"math"
	"slices"
	"time"
)

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// percentile of sorted times by nearest rank: the smallest that at least this share of
// them do not exceed. 0 for none.
func percentile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(share * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// setTimes sorts the times and puts their percentiles into the step.
func (s *Step) setTimes(times []time.Duration) {
	slices.Sort(times)
	s.P50Ms = milliseconds(percentile(times, 0.5))
	s.P99Ms = milliseconds(percentile(times, 0.99))
	s.P999Ms = milliseconds(percentile(times, 0.999))
	s.MaxMs = milliseconds(percentile(times, 1))
}
