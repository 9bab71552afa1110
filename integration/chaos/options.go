package chaos

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"
)

// Options of a run.
type Options struct {
	// Program is the path of the kudos binary.
	Program string
	// Faults is how many must have struck before the run ends.
	Faults int
	// For is after how long the run ends even so, with the episode that is under way; 0: never.
	For time.Duration
	// Enough, if not nil, ends the run with the episode that is under way when it is closed.
	Enough <-chan struct{}
	// Seed decides which faults strike, and on whom.
	Seed uint64
	// Kinds are the kinds of fault to take; none: all that this machine can do.
	Kinds []string
	// FaultsPerEpisode are dealt between two checks.
	FaultsPerEpisode int
	// Rate of the load, in events a second.
	Rate int
	// Partitions of the topics, Processors that share them.
	Partitions int32
	Processors int
	// DrainTimeout bounds the wait for the lag to go back to 0.
	DrainTimeout time.Duration
	// Dir is where data and logs go; it must exist. They stay there if the run fails.
	Dir string
	// Progress, if not nil, gets the report as it is after each episode.
	Progress func(*Report) error
	// Out gets a line an episode, Log what happens in between.
	Out io.Writer
	Log *slog.Logger
}

// DefaultOptions suit a machine with two cores.
func DefaultOptions() Options {
	return Options{
		Faults: 200, Seed: 1, FaultsPerEpisode: 8, Rate: 10000, Partitions: 6, Processors: 3,
		DrainTimeout: 2 * time.Minute, Out: io.Discard, Log: slog.New(slog.DiscardHandler),
	}
}

// Validate says what is wrong with the options, all of it.
func (o Options) Validate() error {
	var errs []error
	if o.Program == "" || o.Dir == "" {
		errs = append(errs, errors.New("chaos: the program's path and a directory are needed"))
	}
	if o.Faults < 1 || o.FaultsPerEpisode < 1 || o.Rate < 1 || o.Partitions < 1 || o.Processors < 2 || o.DrainTimeout <= 0 || o.For < 0 {
		errs = append(errs, errors.New("chaos: faults, faults an episode, rate, partitions and drain timeout must be above 0, processors above 1"))
	}
	for _, name := range o.Kinds {
		if !slices.Contains(Kinds(), name) {
			errs = append(errs, fmt.Errorf("chaos: there is no kind of fault %q; there are %v", name, Kinds()))
		}
	}
	return errors.Join(errs...)
}
