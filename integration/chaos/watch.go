package chaos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kudos/integration/oracle"
)

const (
	watchEvery = 100 * time.Millisecond
	// stallLimit is how long a partition may stand still while all that it needs is there; if a processor is struck
	// or a server comes back before it has moved, for so long again.
	stallLimit = sessionTimeout + 2*time.Second
	stallsKept = 10
)

// watch takes snapshots of MySQL, in which only a failover moves positions back, and times stalls of partitions.
type watch struct {
	sys       *system
	regressed atomic.Int64 // how often a failover moved a partition back

	mu struct {
		sync.Mutex
		last       map[int32]oracle.Seen
		open       map[int32]*Stall // since the partition moved last
		generation int
		on         []string // kinds of the faults that are on
		away       int      // how many of them take something away
		snapshots  int
		stalls     []Stall // that ended since begin
		backwards  []string
		sightings  []oracle.Seen
	}
}

func newWatch(s *system) *watch {
	w := &watch{sys: s}
	s.watch = w
	w.mu.last, w.mu.open = map[int32]oracle.Seen{}, map[int32]*Stall{}
	return w
}

func (w *watch) run(ctx context.Context) {
	owner := oracle.NewFold(w.sys.opts.Partitions).PartitionOf
	for wait(ctx, watchEvery) == nil {
		d := w.sys.database.Load()
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		seen, err := oracle.Look(asking, d.direct, owner)
		cancel()
		if err == nil { // otherwise it is down, or paused
			w.note(seen, d.failovers)
		}
	}
}

func (w *watch) note(seen map[int32]oracle.Seen, generation int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if generation < w.mu.generation {
		return // response of the primary before the failover
	}
	now := time.Now()
	w.mu.snapshots++
	for p, at := range seen {
		last := w.mu.last[p]
		if at.Offset < last.Offset || at.Seq < last.Seq {
			if generation == w.mu.generation {
				w.mu.backwards = append(w.mu.backwards,
					fmt.Sprintf("I3 MySQL was rewound from %v to %v in partition %d without a failover", last.Position,
						at.Position, p))
			} else {
				w.regressed.Add(1)
			}
		}
		if at.Position != last.Position {
			w.settle(p, now)
		}
		if at != last {
			w.mu.sightings = append(w.mu.sightings, at)
		}
		w.mu.last[p] = at
	}
	w.mu.generation = generation
}

// settle ends the stall of a partition, which has moved, and begins the next one; mu is held.
func (w *watch) settle(p int32, now time.Time) {
	if s := w.mu.open[p]; s != nil {
		s.Seconds = now.Sub(s.Begin).Seconds()
		if s.tooLong() {
			w.sys.log.Info("stall", "partition", p, "from", s.Begin, "seconds", s.Seconds, "away", s.AwaySeconds,
				"strikes", s.Strikes, "faults", s.Faults)
		}
		w.mu.stalls = append(w.mu.stalls, *s)
		w.mu.open[p] = &Stall{Seed: w.sys.opts.Seed, Partition: p, Begin: now}
	}
}

// struck says that a fault is on, until over is called. away is 1 if it takes away what partitions need, else 0.
func (w *watch) struck(kind string, away int) (over func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.on, w.mu.away = append(w.mu.on, kind), w.mu.away+away
	return sync.OnceFunc(func() {
		if away > 0 {
			defer w.hit()
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		i := slices.Index(w.mu.on, kind)
		w.mu.on, w.mu.away = slices.Delete(w.mu.on, i, i+1), w.mu.away-away
	})
}

// hit says that a processor is struck, or that a server is back.
func (w *watch) hit() {
	if w == nil { // nothing is watched yet
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.mu.open {
		s.Strikes++
	}
}

// mark notes at short intervals which faults are on.
func (w *watch) mark(ctx context.Context) {
	for last := time.Now(); wait(ctx, watchEvery) == nil; last = time.Now() {
		w.mu.Lock()
		for _, s := range w.mu.open {
			if w.mu.away > 0 {
				s.AwaySeconds += time.Since(last).Seconds()
			}
			s.Faults = slices.Compact(slices.Sorted(slices.Values(slices.Concat(s.Faults, w.mu.on))))
		}
		w.mu.Unlock()
	}
}

// begin starts timing stalls: from now on there is work in all partitions.
func (w *watch) begin(partitions int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.stalls, w.mu.snapshots = nil, 0
	for p := range partitions {
		w.mu.open[p] = &Stall{Seed: w.sys.opts.Seed, Partition: p, Begin: time.Now()}
	}
}

// end takes what an episode has seen; sightings are of its snapshots, without repetitions.
func (w *watch) end(e *episode) (backwards []string, sightings []oracle.Seen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.mu.open)
	e.said["snapshots of MySQL compared while events arrived"] = w.mu.snapshots
	for _, s := range w.mu.stalls {
		if e.stall = max(e.stall, s.Seconds); s.tooLong() {
			e.said[fmt.Sprintf("stalls of more than %v for each strike, nothing away", stallLimit)]++
		}
	}
	e.stalls = worst(w.mu.stalls)
	backwards, sightings = w.mu.backwards, w.mu.sightings
	w.mu.backwards, w.mu.sightings = nil, nil
	return backwards, sightings
}

func (w *watch) rebuilt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.mu.last)
	w.mu.backwards, w.mu.sightings = nil, nil
}

// Stall is a time without progress of a partition's counts in MySQL while events arrived.
type Stall struct {
	Seed      uint64    `json:"seed"` // of the run
	Partition int32     `json:"partition"`
	Begin     time.Time `json:"begin"` // where to look in the logs, which -keep keeps
	Seconds   float64   `json:"seconds"`
	// AwaySeconds are those in which a fault took away what partitions need: MySQL or its rows, a broker, connections,
	// a disk, or all processors. Each partition needs all brokers: leaders and coordinators are spread over them.
	AwaySeconds float64  `json:"away_seconds"`
	Faults      []string `json:"faults"`  // that were on
	Strikes     int      `json:"strikes"` // how often a processor was killed, stopped or paused, or a server came back
}

func (s Stall) tooLong() bool { return s.Beyond() > stallLimit.Seconds()*float64(max(1, s.Strikes)) }

// Beyond returns how many seconds the partition stood still while all that it needs was there.
func (s Stall) Beyond() float64 { return s.Seconds - s.AwaySeconds }

// worst returns the stalls that were longest while nothing was away.
func worst(stalls []Stall) []Stall {
	slices.SortStableFunc(stalls, func(a, b Stall) int { return cmp.Compare(b.Beyond(), a.Beyond()) })
	return stalls[:min(stallsKept, len(stalls))]
}
