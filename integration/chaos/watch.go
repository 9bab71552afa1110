package chaos

import (
	"context"
	"fmt"
	"sync"
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
	database *database

	mu struct {
		sync.Mutex
		last       map[int32]oracle.Position
		moved      map[int32]time.Time
		generation int
		stall      time.Duration // the longest since begin
		stalled    int32         // the partition
		backwards  []string
		sightings  []sighting
		regressed  int // partitions that a failover moved back
	}
}

func newWatch(d *database) *watch {
	w := &watch{database: d}
	w.mu.last, w.mu.moved = map[int32]oracle.Position{}, map[int32]time.Time{}
	return w
}

// run looks until ctx ends.
func (w *watch) run(ctx context.Context) {
	for wait(ctx, watchEvery) == nil {
		_, db, generation := w.database.primary()
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		positions, err := oracle.Positions(asking, db)
		cancel()
		if err == nil { // otherwise it is down, or paused
			w.note(positions, generation)
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
				w.mu.backwards = append(w.mu.backwards, fmt.Sprintf("I3 MySQL went back from %v to %v in partition %d without a failover", last, at, p))
			} else {
				w.mu.regressed++
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
		if d := now.Sub(since); d > w.mu.stall {
			w.mu.stall, w.mu.stalled = d, p
		}
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

// regressed is how often a failover moved a partition back.
func (w *watch) regressed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.regressed
}
