package rankings

import (
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strings"
	"time"

	"kudos/schema"
)

// Config are the ranker settings that rankings depend on.
type Config struct {
	Windows  []time.Duration
	Lateness time.Duration // of the watermark behind the clock
	Score    string        // "count" or "decay"
	HalfLife time.Duration // for decay
	TopN     int
	MinLikes int64
}

// kind is a window or leaderboard; times and sizes are in minutes.
type kind struct {
	name      string
	size, hop int64 // 0: all time
	bucket    int64 // likes of one bucket have the same age

	weights         []int64 // of a like, by age in buckets
	score, halfLife string  // in the format of rankings
}

const (
	minutesOfHour = 60
	minutesOfDay  = 24 * minutesOfHour
	// longWindow is the size from which windows hop by the hour.
	longWindow = 12 * minutesOfHour

	scoreCount = "count"
	scoreDecay = "decay"
)

func (c *Config) kinds() []*kind {
	day := &kind{name: "day", score: scoreCount, size: minutesOfDay, hop: minutesOfDay, bucket: minutesOfHour}
	day.weights = slices.Repeat([]int64{one}, minutesOfDay/minutesOfHour)
	kinds := []*kind{{name: "all", score: scoreCount}, day}
	for _, size := range c.Windows {
		k := &kind{name: written(size), score: c.Score, size: int64(size / time.Minute), hop: 1}
		if k.size >= longWindow {
			k.hop = minutesOfHour
		}
		k.bucket = k.hop
		k.weights = slices.Repeat([]int64{one}, int(k.size/k.bucket))
		if c.Score == scoreDecay {
			k.halfLife = written(c.HalfLife)
			for age := range k.weights {
				k.weights[age] = weight(int64(age)*k.bucket, int64(c.HalfLife/time.Minute))
			}
		}
		kinds = append(kinds, k)
	}
	return kinds
}

// written formats a duration of whole minutes as in rankings: 10m, 1h, 1h30m.
func written(d time.Duration) string {
	return strings.Replace(strings.TrimSuffix(d.String(), "0s"), "h0m", "h", 1)
}

func (k *kind) boundsOf(watermark int64) (from, to int64) {
	to = floor(watermark, k.hop)*k.hop + k.hop
	return to - k.size, to
}

// isWindow says why from and to cannot be bounds of this kind, "" if they can.
func (k *kind) isWindow(from, to schema.Minute) string {
	switch {
	case k.size == 0 && (from != schema.NoMinute || to != schema.NoMinute):
		return fmt.Sprintf("from %v to %v, but all time has no bounds", from, to)
	case k.size == 0:
		return ""
	case from == schema.NoMinute || to == schema.NoMinute:
		return fmt.Sprintf("from %v to %v", from, to)
	case int64(to-from) != k.size:
		return fmt.Sprintf("from %v to %v are %d minutes, not %d", from, to, to-from, k.size)
	case floor(int64(to), k.hop)*k.hop != int64(to):
		return fmt.Sprintf("to %v is not a multiple of %d minutes", to, k.hop)
	}
	return ""
}

func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// align finds the largest end of a window that every partition has reached, ignoring partitions with nothing in the
// window. Clocks are in minutes, schema.NoMinute if a partition has none. ok: there is such an end.
func (k *kind) align(clocks []int64, lateness int64) (largest int64, ok bool) {
	for _, clock := range clocks {
		to := k.own(clock, lateness)
		if clock != int64(schema.NoMinute) && k.reached(to, clocks, lateness) && (!ok || to > largest) {
			largest, ok = to, true
		}
	}
	return largest, ok
}

func (k *kind) stands(to int64, clocks []int64, lateness int64) bool {
	return slices.ContainsFunc(clocks, func(clock int64) bool { return k.own(clock, lateness) == to })
}

// own returns the end of the window of a partition with a clock; schema.NoMinute without one.
func (k *kind) own(clock, lateness int64) int64 {
	if clock == int64(schema.NoMinute) {
		return clock
	}
	_, to := k.boundsOf(clock - lateness)
	return to
}

// reached reports whether every partition with something in the window has reached its end.
func (k *kind) reached(to int64, clocks []int64, lateness int64) bool {
	return !slices.ContainsFunc(clocks, func(clock int64) bool {
		return clock != int64(schema.NoMinute) && clock >= to-k.size && k.own(clock, lateness) < to
	})
}

// watermark returns the lowest watermark of the partitions that are not before the window.
func (k *kind) watermark(from schema.Minute, clocks []int64, lateness int64) schema.Minute {
	least := schema.NoMinute
	for _, clock := range clocks {
		if clock == int64(schema.NoMinute) || k.size > 0 && clock < int64(from) {
			continue
		}
		if w := schema.Minute(clock - lateness); least == schema.NoMinute || w < least {
			least = w
		}
	}
	return least
}

const one = 1_000_000 // the weight of a like that has not aged

// weight returns the weight of a like at an age, in millionths: the largest integer w that is at most 10^6 ·
// 2^(−age/halfLife). Raised to the power of halfLife, both sides are integers: w^halfLife · 2^age ≤ 10^(6·halfLife).
func weight(age, halfLife int64) int64 {
	if age > 20*halfLife {
		return 0 // 2^20 > 10^6
	}
	if d := new(big.Int).GCD(nil, nil, big.NewInt(age), big.NewInt(halfLife)).Int64(); d > 1 {
		age, halfLife = age/d, halfLife/d
	}
	q := big.NewInt(halfLife)
	limit := new(big.Int).Exp(big.NewInt(one), q, nil)
	tooMuch := func(w int) bool {
		n := new(big.Int).Exp(big.NewInt(int64(w)), q, nil)
		return n.Lsh(n, uint(age)).Cmp(limit) > 0
	}
	return int64(sort.Search(one+1, tooMuch)) - 1
}
