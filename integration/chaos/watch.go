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
	watchEvery   = 100 * time.Millisecond
	maxSightings = 20_000 // positions kept for the oracle between two checks
)

type sighting struct {
	partition int32
	at        oracle.Position
}

// watch polls the positions in MySQL, which only a failover moves back, and times the longest stall of any position.
type watch struct {
	sys       *system
	regressed atomic.Int64 // how often a failover moved a partition back

	mu struct {
		sync.Mutex
		last       map[int32]oracle.Position
		moved      map[int32]time.Time
		generation int
		stall      time.Duration // the longest one since begin
		backwards  []string
		sightings  []sighting
	}
}

func newWatch(s *system) *watch {
	w := &watch{sys: s}
	w.mu.last, w.mu.moved = map[int32]oracle.Position{}, map[int32]time.Time{}
	return w
}

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
		return // response of the primary before the failover
	}
	now := time.Now()
	for p, at := range positions {
		last := w.mu.last[p]
		if at.Offset < last.Offset || at.Seq < last.Seq {
			if generation == w.mu.generation {
				w.mu.backwards = append(w.mu.backwards,
					fmt.Sprintf("I3 MySQL was rewound from %v to %v in partition %d without a failover", last, at, p))
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

// settle records how long a partition did not move; mu is held.
func (w *watch) settle(p int32, now time.Time) {
	if since, ok := w.mu.moved[p]; ok {
		w.mu.stall = max(w.mu.stall, now.Sub(since))
	}
}

// begin starts timing stalls: from now on there is work in all partitions.
func (w *watch) begin(partitions int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.stall = 0
	for p := range partitions {
		w.mu.moved[p] = time.Now()
	}
}

func (w *watch) end() (stall time.Duration, backwards []string, sightings []sighting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.mu.moved)
	stall, backwards, sightings = w.mu.stall, w.mu.backwards, w.mu.sightings
	w.mu.backwards, w.mu.sightings = nil, nil
	return stall, backwards, sightings
}

func (w *watch) rebuilt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.mu.last)
	w.mu.backwards, w.mu.sightings = nil, nil
}
