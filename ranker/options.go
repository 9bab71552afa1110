package ranker

import (
	"errors"
	"fmt"
	"time"

	"kudos/ranker/window"
	"kudos/schema"
)

// Options of the ranker role. Those that rankings depend on (Windows to MinLikes) must be the same in every process.
type Options struct {
	StateDir   string `mapstructure:"state_dir"`   // directory of the local state stores: a cache, not the processor's
	CacheBytes int64  `mapstructure:"cache_bytes"` // block cache shared by all partitions' stores
	MaxBatch   int    `mapstructure:"max_batch"`   // records of a partition in one transaction

	Windows []time.Duration `mapstructure:"windows"` // sizes: whole minutes, or whole hours from 12 h
	// Regions have their own rankings; other likes count as unknown (ZZ). If empty, every region in events has its own.
	Regions []string `mapstructure:"regions"`
	// AllowedLateness is how far the watermark lags behind the largest event time, in whole minutes.
	AllowedLateness time.Duration `mapstructure:"allowed_lateness"`
	// IdleAfter is how long a partition must be without records before its clock follows the wall clock.
	IdleAfter time.Duration `mapstructure:"idle_after"`
	Score     string        `mapstructure:"score"`     // count or decay
	HalfLife  time.Duration `mapstructure:"half_life"` // age at which a like weighs half, whole minutes; for decay only
	TopN      int           `mapstructure:"top_n"`     // most posts in a ranking
	MinLikes  int64         `mapstructure:"min_likes"` // that a post needs in the window to be ranked

	// Milestones are numbers of likes, in ascending order; each post that reaches one is written to the topic
	// milestones, once. They must be the same in every process. Empty: none.
	Milestones []int64 `mapstructure:"milestones"`

	EmitInterval time.Duration `mapstructure:"emit_interval"` // how often changed rankings are written
	// TransactionTimeout is how long Kafka keeps a dead process's transaction open, delaying read_committed consumers.
	TransactionTimeout time.Duration `mapstructure:"transaction_timeout"`
	// SessionTimeout is how long the group waits for a silent process before it reassigns its partitions.
	SessionTimeout  time.Duration `mapstructure:"session_timeout"`
	ParkInterval    time.Duration `mapstructure:"park_interval"`    // between retries of a parked partition
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"` // for the batch in flight after SIGTERM
}

const scoreCount, scoreDecay = "count", "decay" // values of Options.Score

// DefaultOptions are suitable for production.
func DefaultOptions() Options {
	return Options{
		StateDir: "kudos-ranker-state", CacheBytes: 256 << 20, MaxBatch: 50_000,
		Windows: []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour}, Regions: []string{},
		AllowedLateness: 2 * time.Minute, IdleAfter: time.Minute,
		Score: scoreCount, HalfLife: 30 * time.Minute, TopN: 100, MinLikes: 1,
		Milestones:   []int64{100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000},
		EmitInterval: 10 * time.Second, TransactionTimeout: 30 * time.Second, SessionTimeout: 10 * time.Second,
		ParkInterval: 5 * time.Second, ShutdownTimeout: 20 * time.Second,
	}
}

const (
	maxWindows    = 8
	maxTopN       = 1000
	longWindow    = 12 * time.Hour     // size from which windows hop by the hour
	longestWindow = 7 * 24 * time.Hour // how long like-updates stays uncompacted
)

// Validate reports every invalid option.
func (o Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("ranker."+format, args...))
		}
	}
	check(o.StateDir != "", "state_dir: must name a directory")
	check(o.CacheBytes >= 1<<20, "cache_bytes: must be at least 1 MiB")
	check(o.MaxBatch >= 1 && o.MaxBatch <= 1_000_000, "max_batch: must be between 1 and 1000000")
	check(len(o.Windows) >= 1 && len(o.Windows) <= maxWindows, "windows: must be between 1 and %d of them", maxWindows)
	seen := map[time.Duration]bool{}
	for _, w := range o.Windows {
		switch {
		case seen[w]:
			check(false, "windows: %s is listed twice", w)
		case w < time.Minute || w > longestWindow:
			check(false, "windows: %s is not between 1m and %s", w, longestWindow)
		case w >= longWindow:
			check(w%time.Hour == 0, "windows: %s is not a whole number of hours; windows from %s on advance by hours",
				w, longWindow)
		default:
			check(w%time.Minute == 0, "windows: %s is not a whole number of minutes", w)
		}
		seen[w] = true
	}
	for _, text := range o.Regions {
		r, ok := schema.ParseRegion(text)
		check(ok && text != "" && r.String() == text, "regions: %q is not of the form US or US-CA", text)
	}
	check(o.AllowedLateness >= 0 && o.AllowedLateness <= 24*time.Hour && o.AllowedLateness%time.Minute == 0,
		"allowed_lateness: must be whole minutes, at most 24h")
	check(o.Score == scoreCount || o.Score == scoreDecay, "score: %q is neither count nor decay", o.Score)
	check(o.HalfLife >= time.Minute && o.HalfLife <= longestWindow && o.HalfLife%time.Minute == 0,
		"half_life: must be whole minutes, between 1m and %s", longestWindow)
	check(o.TopN >= 1 && o.TopN <= maxTopN, "top_n: must be between 1 and %d", maxTopN)
	check(o.MinLikes >= 1, "min_likes: must be at least 1")
	for i, n := range o.Milestones {
		check(n >= 1 && (i == 0 || n > o.Milestones[i-1]), "milestones: must be above 0 and in ascending order")
	}
	for name, d := range map[string]time.Duration{
		"idle_after": o.IdleAfter, "emit_interval": o.EmitInterval, "transaction_timeout": o.TransactionTimeout,
		"session_timeout": o.SessionTimeout, "park_interval": o.ParkInterval, "shutdown_timeout": o.ShutdownTimeout,
	} {
		check(d > 0, "%s: must be above zero", name)
	}
	return errors.Join(errs...)
}

// config is the part of the options that rankings depend on.
func (o Options) config() *window.Config {
	c := &window.Config{Lateness: int64(o.AllowedLateness / time.Minute), TopN: o.TopN, MinLikes: o.MinLikes}
	halfLife := int64(0)
	if o.Score == scoreDecay {
		halfLife = int64(o.HalfLife / time.Minute)
	}
	for _, size := range o.Windows {
		c.Windows = append(c.Windows, window.New(int64(size/time.Minute), halfLife))
	}
	c.Windows = append(c.Windows, window.Day())
	for _, text := range o.Regions {
		if c.Regions == nil {
			c.Regions = map[schema.Region]bool{}
		}
		region, _ := schema.ParseRegion(text)
		c.Regions[region] = true
	}
	return c
}
