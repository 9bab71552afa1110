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

// This file watches a session's partitions: where their logs end (a paused client does not report it), and stalls.

const (
	watchInterval = 5 * time.Second
	// stallTimeout is longer than a batch can take. Kafka allows a transaction 15 minutes at most, and aborting a batch
	// that is slow because of MySQL would repeat it forever.
	stallTimeout = 20 * time.Minute
)

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
	// Only the time since it is running counts: before, it may have been parked for hours.
	if status.State == StateRunning && min(status.Stands, time.Since(status.Since)) > s.opts.stallTimeout {
		s.opts.stalled(fmt.Sprintf("%s has stayed at offset %d for %s, with a lag of %d records, for no known reason",
			status, status.Position.Offset, status.Stands.Round(time.Second), status.Lag))
	}
}

// askForEnds requests the ends of all logs, with one request per broker. If a broker does not answer, its ends stay.
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

// die ends the process with all goroutines' stacks, which show why a partition stalled; another process continues it.
func die(why string) {
	debug.SetTraceback("all")
	panic("watchdog: " + why)
}
