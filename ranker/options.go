package ranker

import (
	"errors"
	"fmt"
	"time"

	"kudos/ranker/window"
	"kudos/schema"
)

// Options of the ranker role. Those that rankings depend on (windows to min_likes) must be the same in every process.
type Options struct {
	// StateDir holds the local copies of the ranker's state tables. It is a cache, and not the processor's.
	StateDir string `mapstructure:"state_dir"`
	// CacheBytes is the size of the tables' block cache, for all partitions.
	CacheBytes int64 `mapstructure:"cache_bytes"`
	// MaxBatch is the largest number of records of a partition in one transaction.
	MaxBatch int `mapstructure:"max_batch"`

	// Windows are the sizes of the windows: whole minutes, from 12 h on whole hours.
	Windows []time.Duration `mapstructure:"windows"`
	// Regions have rankings of their own; likes of all others count as unknown (ZZ). None: every region that writers
	// name has its own.
	Regions []string `mapstructure:"regions"`
	// AllowedLateness is how far the watermark is behind the largest event time, in whole minutes.
	AllowedLateness time.Duration `mapstructure:"allowed_lateness"`
	// IdleAfter: the clock of a partition follows the wall clock after so long without records.
	IdleAfter time.Duration `mapstructure:"idle_after"`
	// Score is count or decay.
	Score string `mapstructure:"score"`
	// HalfLife is the age at which a like weighs half, for decay; in whole minutes.
	HalfLife time.Duration `mapstructure:"half_life"`
	// TopN is the largest number of posts in a ranking.
	TopN int `mapstructure:"top_n"`
	// MinLikes is the number of likes in the window that a post needs to be ranked.
	MinLikes int64 `mapstructure:"min_likes"`

	// EmitInterval is how often rankings that changed are written.
	EmitInterval time.Duration `mapstructure:"emit_interval"`
	// TransactionTimeout is how long Kafka keeps a transaction of a dead process open, which delays readers of
	// committed data.
	TransactionTimeout time.Duration `mapstructure:"transaction_timeout"`
	// SessionTimeout is how long the groups wait for a silent process before they reassign its partitions.
	SessionTimeout time.Duration `mapstructure:"session_timeout"`
	// ParkInterval is how often a parked partition is tried again.
	ParkInterval time.Duration `mapstructure:"park_interval"`
	// ShutdownTimeout bounds the batch in flight after SIGTERM.
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"`
}

// The values of Options.Score.
const (
	scoreCount = "count"
	scoreDecay = "decay"
)

// DefaultOptions suit a production ranker.
func DefaultOptions() Options {
	return Options{
		StateDir:           "kudos-ranker-state",
		CacheBytes:         256 << 20,
		MaxBatch:           50_000,
		Windows:            []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour},
		Regions:            []string{},
		AllowedLateness:    2 * time.Minute,
		IdleAfter:          time.Minute,
		Score:              scoreCount,
		HalfLife:           30 * time.Minute,
		TopN:               100,
		MinLikes:           1,
		EmitInterval:       10 * time.Second,
		TransactionTimeout: 30 * time.Second,
		SessionTimeout:     10 * time.Second,
		ParkInterval:       5 * time.Second,
		ShutdownTimeout:    20 * time.Second,
	}
}

const (
	maxWindows = 8
	maxTopN    = 1000
	// longWindow is the size from which on windows hop by the hour.
	longWindow = 12 * time.Hour
	// longestWindow is what like-updates holds uncompacted.
	longestWindow = 7 * 24 * time.Hour
)

// Validate reports everything that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("ranker."+format, args...))
		}
	}
	check(o.StateDir != "", "state_dir: a folder is needed")
	check(o.CacheBytes >= 1<<20, "cache_bytes: at least 1 MiB")
	check(o.MaxBatch >= 1 && o.MaxBatch <= 1_000_000, "max_batch: between 1 and 1000000")
	check(len(o.Windows) >= 1 && len(o.Windows) <= maxWindows, "windows: between 1 and %d of them", maxWindows)
	seen := map[time.Duration]bool{}
	for _, w := range o.Windows {
		switch {
		case seen[w]:
			check(false, "windows: %s is there twice", w)
		case w < time.Minute || w > longestWindow:
			check(false, "windows: %s is not between 1m and %s", w, longestWindow)
		case w >= longWindow:
			check(w%time.Hour == 0, "windows: %s is no whole number of hours, by which windows of %s and more slide",
				w, longWindow)
		default:
			check(w%time.Minute == 0, "windows: %s is no whole number of minutes", w)
		}
		seen[w] = true
	}
	for _, text := range o.Regions {
		r, ok := schema.ParseRegion(text)
		check(ok && text != "" && r.String() == text, "regions: %q is not of the form US or US-CA", text)
	}
	check(o.AllowedLateness >= 0 && o.AllowedLateness <= 24*time.Hour && o.AllowedLateness%time.Minute == 0,
		"allowed_lateness: whole minutes, 24h at most")
	check(o.Score == scoreCount || o.Score == scoreDecay, "score: %q is neither count nor decay", o.Score)
	check(o.HalfLife >= time.Minute && o.HalfLife <= longestWindow && o.HalfLife%time.Minute == 0,
		"half_life: whole minutes, between 1m and %s", longestWindow)
	check(o.TopN >= 1 && o.TopN <= maxTopN, "top_n: between 1 and %d", maxTopN)
	check(o.MinLikes >= 1, "min_likes: at least 1")
	for name, d := range map[string]time.Duration{
		"idle_after":          o.IdleAfter,
		"emit_interval":       o.EmitInterval,
		"transaction_timeout": o.TransactionTimeout,
		"session_timeout":     o.SessionTimeout,
		"park_interval":       o.ParkInterval,
		"shutdown_timeout":    o.ShutdownTimeout,
	} {
		check(d > 0, "%s: must be above zero", name)
	}
	return errors.Join(errs...)
}

// config is what rankings depend on, besides the log.
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
