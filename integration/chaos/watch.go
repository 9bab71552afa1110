package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kudos/integration/oracle"
)

const (
	watchEvery   = 100 * time.Millisecond
	maxSightings = 20_000 // positions kept for the oracle between two checks
)

type sighting struct {
	partition int32
	seen      oracle.Seen
}

// watch takes snapshots of MySQL, in which only a failover moves positions back, and times stalls of partitions.
type watch struct {
	sys       *system
	regressed atomic.Int64 // how often a failover moved a partition back

	mu struct {
		sync.Mutex
		last       map[int32]oracle.Seen
		moved      map[int32]time.Time
		generation int
		snapshots  int
		stalls     []Stall // since begin
		backwards  []string
		sightings  []sighting
	}
}

func newWatch(s *system) *watch {
	w := &watch{sys: s}
	w.mu.last, w.mu.moved = map[int32]oracle.Seen{}, map[int32]time.Time{}
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
	if len(w.mu.sightings)+len(seen) <= maxSightings {
		w.mu.snapshots++
	}
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
			w.mu.moved[p] = now
		}
		if at != last && len(w.mu.sightings) < maxSightings {
			w.mu.sightings = append(w.mu.sightings, sighting{p, at})
		}
		w.mu.last[p] = at
	}
	w.mu.generation = generation
}

// settle records how long a partition did not move; mu is held.
func (w *watch) settle(p int32, now time.Time) {
	if since, ok := w.mu.moved[p]; ok {
		w.mu.stalls = append(w.mu.stalls, Stall{Partition: p, Begin: since, Seconds: now.Sub(since).Seconds(),
			Seed: w.sys.opts.Seed})
	}
}

// begin starts timing stalls: from now on there is work in all partitions.
func (w *watch) begin(partitions int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.stalls, w.mu.snapshots = nil, 0
	for p := range partitions {
		w.mu.moved[p] = time.Now()
	}
}

// end takes what an episode has seen; sightings are of its snapshots, without repetitions.
func (w *watch) end(e *episode) (backwards []string, sightings []sighting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.mu.moved)
	e.snapshots = w.mu.snapshots
	for _, s := range w.mu.stalls {
		e.stall = max(e.stall, s.Seconds)
		w.sys.timeline.explain(&s)
		e.stalls = append(e.stalls, s)
	}
	e.beyond = len(slices.DeleteFunc(slices.Clone(e.stalls), func(s Stall) bool { return s.Beyond() <= stallLimit }))
	e.stalls = worst(e.stalls)
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
