package stream

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// This file is what a session sees of its partitions from outside: how far behind those are
// that fetch nothing, and whether one stands still that should not.

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
		for _, c := range s.claims {
			s.look(c)
		}
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *session) look(c *claim) {
	status := c.status()
	// As long as it has been running: before, it may have been parked for hours.
	if status.State == StateRunning && min(status.Stands, time.Since(status.Since)) > s.opts.stallTimeout {
		s.opts.stalled(fmt.Sprintf("%s has stood at offset %d for %s, with %d records before it, and nothing says why", status, status.Position.Offset, status.Stands.Round(time.Second), status.Lag))
	}
	if !c.needsEnd() {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, watchInterval)
	defer cancel()
	if _, end, err := Bounds(ctx, s.cl, s.topic, c.Partition()); err == nil {
		c.endsAt(end)
	}
}

// needsEnd tells that nothing is fetched that would tell where the log ends.
func (c *claim) needsEnd() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.state != StateRunning
}

// endsAt notes where the log ended a moment ago.
func (c *claim) endsAt(end int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.lso = max(c.mu.lso, end)
}

// die ends the process with the stacks of all goroutines: a partition that stands still for
// no reason that is known goes on with another process, and the stacks tell why it did not here.
func die(why string) {
	debug.SetTraceback("all")
	panic("watchdog: " + why)
}
