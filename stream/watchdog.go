package stream

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

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
	// Only the time since it is running counts: before, it may have been parked for hours. And only the time since the
	// leader answers: another process would not get further either.
	stalled := min(status.Stands, time.Since(status.Since), time.Since(p.unanswered))
	if status.State == StateRunning && stalled > s.opts.stallTimeout {
		s.opts.stalled(fmt.Sprintf("%s has stayed at offset %d for %s, with a lag of %d records, for no known reason",
			status, status.Position.Offset, status.Stands.Round(time.Second), status.Lag))
	}
}

// askForEnds requests the ends of all partitions, with two requests per broker (and the metadata, which the client may
// have). If a broker does not answer, its ends stay.
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
	high, stable, _ := kafka.ListEnds(ctx, s.cl, s.topic) // after an error those of the others
	for n, p := range s.partitions() {
		if end, ok := stable[s.topic][n]; !ok || end.Err != nil {
			p.unanswered = time.Now()
		} else {
			p.queue.endsAt(end.Offset, before[n])
			p.mu.Lock()
			p.mu.hidden.observe(high[s.topic][n], end, time.Now())
			p.mu.Unlock()
		}
	}
}

// hidden is what an open transaction hides from consumers: the records from the last stable offset on.
type hidden struct {
	stable, records int64         // the last stable offset; up to the high watermark, markers included
	since           time.Time     // when this last stable offset was first seen below the high watermark
	age             time.Duration // of that; 0: nothing is hidden
}

// observe updates h. While transactions end, the last stable offset moves, and the age is 0.
func (h *hidden) observe(high, stable kadm.ListedOffset, now time.Time) {
	if high.Topic == "" || high.Err != nil || stable.Err != nil {
		return // not known
	}
	records := max(0, high.Offset-stable.Offset)
	if records == 0 || h.records == 0 || h.stable != stable.Offset {
		h.since = now
	}
	*h = hidden{stable.Offset, records, h.since, now.Sub(h.since)}
}

// die ends the process with all goroutines' stacks, which show why a partition stalled; another process continues it.
func die(why string) {
	debug.SetTraceback("all")
	panic("watchdog: " + why)
}
