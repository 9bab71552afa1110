package ranker

import (
	"errors"
	"fmt"
	"time"

	"kudos/schema"
)

// Options of the ranker role. Those that rankings depend on (windows to min_likes) must be
// the same in every process.
type Options struct {
	// StateDir holds the local copies of the ranker's state tables. It is a cache, and
	// not the processor's.
	StateDir string `mapstructure:"state_dir"`
	// CacheBytes is the memory of the tables' block cache, for all partitions.
	CacheBytes int64 `mapstructure:"cache_bytes"`
	// MaxBatch is how many records of a partition one transaction takes at most.
	MaxBatch int `mapstructure:"max_batch"`

	// Windows are the sizes of the windows: whole minutes, from 12 h on whole hours.
	Windows []time.Duration `mapstructure:"windows"`
	// Regions have rankings of their own; likes of all others count as unknown (ZZ). None:
	// every region has, as many as writers make up.
	Regions []string `mapstructure:"regions"`
	// AllowedLateness is how far the watermark is behind the largest event time, in
	// whole minutes.
	AllowedLateness time.Duration `mapstructure:"allowed_lateness"`
	// IdleAfter: a partition to which nothing came for so long goes by the wall clock.
	IdleAfter time.Duration `mapstructure:"idle_after"`
	// Score is count or decay.
	Score string `mapstructure:"score"`
	// HalfLife is the age at which a like weighs half, for decay; in whole minutes.
	HalfLife time.Duration `mapstructure:"half_life"`
	// TopN is how many posts a ranking has at most.
	TopN int `mapstructure:"top_n"`
	// MinLikes is how many likes in the window a post needs to be ranked.
	MinLikes int64 `mapstructure:"min_likes"`

	// EmitInterval is how often rankings that changed are written.
	EmitInterval time.Duration `mapstructure:"emit_interval"`
	// TransactionTimeout is how long Kafka keeps a transaction of a dead process
	// open, and with it readers of committed data back.
	TransactionTimeout time.Duration `mapstructure:"transaction_timeout"`
	// SessionTimeout is how long the groups wait for a silent process before they hand
	// its partitions to others.
	SessionTimeout time.Duration `mapstructure:"session_timeout"`
	// ParkInterval is how often a parked partition is looked at again.
	ParkInterval time.Duration `mapstructure:"park_interval"`
	// ShutdownTimeout bounds the batch in hand after SIGTERM.
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"`
}

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
		Score:              "count",
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
	// longWindow is from where on windows slide by the hour.
	longWindow = 12 * time.Hour
	// longestWindow is what like-updates surely holds uncompacted.
	longestWindow = 7 * 24 * time.Hour
)

// Validate says what is wrong with the options, all of it.
func (o Options) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("ranker."+format, args...)) }
	if o.StateDir == "" {
		bad("state_dir: a folder is needed")
	}
	if o.CacheBytes < 1<<20 {
		bad("cache_bytes: at least 1 MiB")
	}
	if o.MaxBatch < 1 || o.MaxBatch > 1_000_000 {
		bad("max_batch: between 1 and 1000000")
	}
	if len(o.Windows) == 0 || len(o.Windows) > maxWindows {
		bad("windows: between 1 and %d of them", maxWindows)
	}
	seen := map[time.Duration]bool{}
	for _, w := range o.Windows {
		switch {
		case seen[w]:
			bad("windows: %s is there twice", w)
		case w < time.Minute || w > longestWindow:
			bad("windows: %s is not between 1m and %s", w, longestWindow)
		case w >= longWindow && w%time.Hour != 0:
			bad("windows: %s is no whole number of hours, by which windows of %s and more slide", w, longWindow)
		case w%time.Minute != 0:
			bad("windows: %s is no whole number of minutes", w)
		}
		seen[w] = true
	}
	for _, text := range o.Regions {
		if r, ok := schema.ParseRegion(text); !ok || text == "" || r.String() != text {
			bad("regions: %q is not of the form US or US-CA", text)
		}
	}
	if o.AllowedLateness < 0 || o.AllowedLateness > 24*time.Hour || o.AllowedLateness%time.Minute != 0 {
		bad("allowed_lateness: whole minutes, 24h at most")
	}
	if o.Score != scoreCount && o.Score != scoreDecay {
		bad("score: %q is neither count nor decay", o.Score)
	}
	if o.HalfLife < time.Minute || o.HalfLife > longestWindow || o.HalfLife%time.Minute != 0 {
		bad("half_life: whole minutes, between 1m and %s", longestWindow)
	}
	if o.TopN < 1 || o.TopN > maxTopN {
		bad("top_n: between 1 and %d", maxTopN)
	}
	if o.MinLikes < 1 {
		bad("min_likes: at least 1")
	}
	for name, d := range map[string]time.Duration{
		"idle_after":          o.IdleAfter,
		"emit_interval":       o.EmitInterval,
		"transaction_timeout": o.TransactionTimeout,
		"session_timeout":     o.SessionTimeout,
		"park_interval":       o.ParkInterval,
		"shutdown_timeout":    o.ShutdownTimeout,
	} {
		if d <= 0 {
			bad("%s: must be above zero", name)
		}
	}
	return errors.Join(errs...)
}

// The kinds of scores.
const (
	scoreCount = "count"
	scoreDecay = "decay"
)
