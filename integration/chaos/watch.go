package chaos

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"kudos/integration/oracle"
)

const (
	watchEvery = 100 * time.Millisecond
	// maxSightings is how many positions are kept for the oracle between two checks.
	maxSightings = 20_000
)

// sighting is a position that MySQL was seen at.
type sighting struct {
	partition int32
	at        oracle.Position
}

// watch looks at the positions in MySQL all the time: they must not go back but by a failover, and for how long they
// stood still is the system's longest stall.
type watch struct {
	sys       *system
	regressed atomic.Int64 // how often a failover moved a partition back

	mu struct {
		sync.Mutex
		last       map[int32]oracle.Position
		moved      map[int32]time.Time
		generation int
		stall      time.Duration // the longest since begin
		backwards  []string
		sightings  []sighting
	}
}

func newWatch(s *system) *watch {
	w := &watch{sys: s}
	w.mu.last, w.mu.moved = map[int32]oracle.Position{}, map[int32]time.Time{}
	return w
}

// run looks until ctx ends.
func (w *watch) run(ctx context.Context) {
	for wait(ctx, watchEvery) == nil {
		d := w.sys.database.Load()
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		positions, err := oracle.Positions(asking, d.direct)
		cancel()
		if err == nil { // otherwise it is down, or paused
			w.note(positions, d.failovers)
		}
	}
}

func (w *watch) note(positions map[int32]oracle.Position, generation int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if generation < w.mu.generation {
		return // the answer of a primary that was failed over from
	}
	now := time.Now()
	for p, at := range positions {
		last := w.mu.last[p]
		if at.Offset < last.Offset || at.Seq < last.Seq {
			if generation == w.mu.generation {
				w.mu.backwards = append(w.mu.backwards,
					fmt.Sprintf("I3 MySQL went back from %v to %v in partition %d without a failover", last, at, p))
			} else {
				w.regressed.Add(1)
			}
		}
		if at != last {
			w.settle(p, now)
			w.mu.moved[p] = now
			if len(w.mu.sightings) < maxSightings {
				w.mu.sightings = append(w.mu.sightings, sighting{p, at})
			}
		}
		w.mu.last[p] = at
	}
	w.mu.generation = generation
}

// settle takes the time that a partition stood still into account; mu is held.
func (w *watch) settle(p int32, now time.Time) {
	if since, ok := w.mu.moved[p]; ok {
		w.mu.stall = max(w.mu.stall, now.Sub(since))
	}
}

// begin starts to take the time: from now on there is work to do in all partitions.
func (w *watch) begin(partitions int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.stall = 0
	for p := range partitions {
		w.mu.moved[p] = time.Now()
	}
}

// end returns the longest time that a partition stood still while there was work for it, and what is for the oracle.
func (w *watch) end() (stall time.Duration, backwards []string, sightings []sighting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.mu.moved)
	stall, backwards, sightings = w.mu.stall, w.mu.backwards, w.mu.sightings
	w.mu.backwards, w.mu.sightings = nil, nil
	return stall, backwards, sightings
}

// rebuilt forgets the positions: MySQL starts over.
func (w *watch) rebuilt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.mu.last)
	w.mu.backwards, w.mu.sightings = nil, nil
}
