// Package window is the pure core of the ranker: it uses no Kafka, no SQL and no wall clock.
//
// A Partition takes the net deltas of one partition of like-updates in order, keeps the likes per post and region in
// time buckets, and produces Versions: the top posts of a window as of a window end and an offset. Leaders does the
// same for all time. Align finds, from the clocks of all partitions, the window end that all of them have reached, and
// Merge combines their lists.
//
// docs/trending.md has the definitions. All times are Unix minutes.
package window

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/big"
	"time"

	"kudos/schema"
)

// Config is what rankings depend on besides the log. It must be equal in all processes.
type Config struct {
	Windows  []Window
	Lateness int64 // how far a watermark lags behind its clock, in minutes
	// TopN bounds the length of a list. Its posts have at least MinLikes likes in the window.
	TopN     int
	MinLikes int64
	// Regions have their own rankings; all others count together as unknown. nil gives every region its own.
	Regions map[schema.Region]bool
}

// PartitionOf is the region whose rankings count the likes of region.
func (c *Config) PartitionOf(region schema.Region) schema.Region {
	if c.Regions == nil || c.Regions[region] {
		return region
	}
	return schema.UnknownRegion
}

// Settings is a hash of the configuration. Only lists with equal settings can be merged.
func (c *Config) Settings() uint64 {
	h := fnv.New64a()
	for _, w := range c.Windows {
		fmt.Fprintln(h, w.Name, w.Size, w.Hop, w.Bucket, w.HalfLife)
	}
	fmt.Fprintln(h, c.Lateness, c.TopN, c.MinLikes, c.Regions) // fmt prints maps in key order
	return h.Sum64()
}

// RegionsHash is a hash of Regions: likes were counted by these, and cannot be divided by others later.
func (c *Config) RegionsHash() uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, c.Regions)
	return h.Sum64()
}

// Window is a hopping window in event time, with buckets of one size: bucket divides hop, and hop divides size.
type Window struct {
	Name              string
	Size, Hop, Bucket int64 // in minutes
	HalfLife          int64 // in minutes, the age at which a like weighs half; 0: no decay

	weights []schema.Score // by age in buckets; nil without decay
}

const (
	hour     = 60
	day      = 24 * hour
	longSize = 12 * hour // the size from which windows hop by the hour
)

// New returns a hopping window; size and halfLife are in minutes.
func New(size, halfLife int64) Window {
	name := schema.WindowName(time.Duration(size) * time.Minute)
	w := Window{Name: name, Size: size, Hop: 1, Bucket: 1, HalfLife: halfLife}
	if size >= longSize {
		w.Hop, w.Bucket = hour, hour
	}
	if halfLife > 0 {
		w.weights = weights(size/w.Bucket, w.Bucket, halfLife)
	}
	return w
}

// Day is the window of the daily leaderboard, from midnight to midnight UTC.
func Day() Window { return Window{Name: schema.LeaderboardDay, Size: day, Hop: day, Bucket: hour} }

// End is the end of the window for a watermark: the end of the hop that contains it.
func (w *Window) End(watermark schema.Minute) schema.Minute {
	return floor(watermark, w.Hop) + schema.Minute(w.Hop)
}

// From is the start of the window that ends at end.
func (w *Window) From(end schema.Minute) schema.Minute { return end - schema.Minute(w.Size) }

// weight is what one like in a bucket counts in the window that ends at end.
func (w *Window) weight(bucket, end schema.Minute) schema.Score {
	if w.weights == nil {
		return schema.ScoreOne
	}
	return w.weights[(int64(end-bucket)-w.Bucket)/w.Bucket]
}

// floor rounds m down to a multiple of n minutes.
func floor(m schema.Minute, n int64) schema.Minute {
	q := int64(m) / n
	if int64(m) < q*n {
		q--
	}
	return schema.Minute(q * n)
}

func ceil(m schema.Minute, n int64) schema.Minute { return -floor(-m, n) }

// weights are the weights of likes of age 0, 1, … n-1 buckets: 2^(-age/halfLife), rounded down to millionths. Integer
// arithmetic makes them equal on every machine, which floating point does not guarantee. Exponential decay shrinks all
// scores of a window by the same factor, so their order is independent of time (Cormode, Shkapenyuk, Srivastava, Xu:
// Forward Decay: A Practical Time Decay Model for Streaming Systems, ICDE 2009).
func weights(n, bucket, halfLife int64) []schema.Score {
	w := make([]schema.Score, n)
	for age := range w {
		w[age] = halved(int64(age)*bucket, halfLife)
	}
	return w
}

// halved is ⌊10⁶ · 2^(-p/q)⌋: the largest x with x^q · 2^p ≤ (10⁶)^q. Floating point only provides the first guess.
func halved(p, q int64) schema.Score {
	near := int64(float64(schema.ScoreOne) * math.Exp2(-float64(p)/float64(q)))
	if d := new(big.Int).GCD(nil, nil, big.NewInt(p), big.NewInt(q)).Int64(); d > 1 {
		p, q = p/d, q/d
	}
	exponent := big.NewInt(q)
	bound := new(big.Int).Exp(big.NewInt(int64(schema.ScoreOne)), exponent, nil)
	fits := func(x int64) bool {
		power := new(big.Int).Exp(big.NewInt(x), exponent, nil)
		return power.Lsh(power, uint(p)).Cmp(bound) <= 0
	}
	for !fits(near) {
		near--
	}
	for fits(near + 1) {
		near++
	}
	return schema.Score(near)
}
