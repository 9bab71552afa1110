package stream

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"kudos/stream/kafka"
)

// This file is what a session sees of its partitions from outside: where their logs end, which a
// client that fetches nothing does not tell, and whether one stands still that should not.

const (
	watchInterval = 5 * time.Second
	// stallTimeout is longer than a batch can take: Kafka allows a transaction 15 minutes at
	// most, and a batch on the slowest MySQL must not be ended to begin again, for ever.
	stallTimeout = 20 * time.Minute
)

// watch looks again and again until the session ends.
func (s *session) watch() {
	ticker := time.NewTicker(s.opts.watchInterval)
	defer ticker.Stop()
	for {
		s.askForEnds()
		for _, p := range s.partitions() {
			s.look(p)
		}
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *session) look(p *Partition) {
	status := p.Status()
	// As long as it has been running: before, it may have been parked for hours.
	if status.State == StateRunning && min(status.Stands, time.Since(status.Since)) > s.opts.stallTimeout {
		s.opts.stalled(fmt.Sprintf("%s has stood at offset %d for %s, with %d records before it, and nothing says why",
			status, status.Position.Offset, status.Stands.Round(time.Second), status.Lag))
	}
}

// askForEnds asks for the ends of all logs, one request a broker. A broker that does not answer tells nothing new.
func (s *session) askForEnds() {
	if len(s.partitions()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, watchInterval)
	defer cancel()
	before := map[int32]int64{}
	for n, p := range s.partitions() {
		before[n] = p.queue.end()
	}
	for n, end := range kafka.LastStableOffsets(ctx, s.cl, s.topic, slices.Collect(maps.Keys(s.partitions()))...) {
		if p := s.partitions()[n]; p != nil {
			p.queue.endsAt(end, before[n])
		}
	}
}

// die ends the process with the stacks of all goroutines: a partition that stands still for
// no reason that is known goes on with another process, and the stacks tell why it did not here.
func die(why string) {
	debug.SetTraceback("all")
	panic("watchdog: " + why)
}
