package window

import (
	"fmt"
	"hash/fnv"
	"time"

	"kudos/schema"
)

// Config is what rankings depend on besides the log. It must be the same in all processes.
type Config struct {
	Windows []Window
	// Lateness is how far a watermark is behind its clock, in minutes.
	Lateness int64
	// TopN posts are listed at most, each with at least MinLikes likes in the window.
	TopN     int
	MinLikes int64
	// Regions have rankings of their own; all others count together as unknown. nil: every region has its own.
	Regions map[schema.Region]bool
}

// Home is the region in which likes of a region count.
func (c *Config) Home(region schema.Region) schema.Region {
	if c.Regions == nil || c.Regions[region] {
		return region
	}
	return schema.UnknownRegion
}

// Settings is a hash of the configuration: only lists of the same configuration can be merged.
func (c *Config) Settings() uint64 {
	h := fnv.New64a()
	for _, w := range c.Windows {
		fmt.Fprintln(h, w.Name, w.Size, w.Hop, w.Bucket, w.HalfLife)
	}
	fmt.Fprintln(h, c.Lateness, c.TopN, c.MinLikes, c.Regions) // fmt prints maps in order
	return h.Sum64()
}

// Window is a hopping window in event time. A bucket is the unit in which likes are kept for it; it divides the hop,
// which divides the size.
type Window struct {
	Name              string
	Size, Hop, Bucket int64 // minutes
	// HalfLife in minutes is the age at which a like weighs half; 0: all weigh the same.
	HalfLife int64

	weights []schema.Score // by age in buckets; nil without decay
}

const (
	hour = 60
	day  = 24 * hour
	// longSize is the size from which on a window hops by the hour.
	longSize = 12 * hour
)

// New returns the hopping window of a size in minutes.
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

// Day is the leaderboard of the day: from midnight to midnight.
func Day() Window {
	return Window{Name: schema.LeaderboardDay, Size: day, Hop: day, Bucket: hour}
}

// End is the end of the window for a watermark: the end of the hop that the watermark is in.
func (w *Window) End(watermark schema.Minute) schema.Minute {
	return floor(watermark, w.Hop) + schema.Minute(w.Hop)
}

// From is the start of the window that ends at end.
func (w *Window) From(end schema.Minute) schema.Minute { return end - schema.Minute(w.Size) }

// weight is what a like in a bucket counts in the window that ends at end.
func (w *Window) weight(bucket, end schema.Minute) schema.Score {
	if w.weights == nil {
		return schema.ScoreOne
	}
	return w.weights[(int64(end-bucket)-w.Bucket)/w.Bucket]
}

// floor rounds a time down to a multiple of n minutes.
func floor(m schema.Minute, n int64) schema.Minute {
	q := int64(m) / n
	if int64(m) < q*n {
		q--
	}
	return schema.Minute(q * n)
}

// ceil rounds a time up to a multiple of n minutes.
func ceil(m schema.Minute, n int64) schema.Minute { return -floor(-m, n) }
