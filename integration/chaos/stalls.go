package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// stallLimit is how long a partition may stand still beyond the time that a server which it needs is away.
	stallLimit = sessionTimeout + 2*time.Second
	stallsKept = 10
)

// Stall is a time without progress of a partition's counts in MySQL while events arrived.
type Stall struct {
	Partition int32     `json:"partition"`
	Begin     time.Time `json:"begin"`
	Seconds   float64   `json:"seconds"`
	// AwaySeconds are those in which faults took away what the partition needs: MySQL or its rows, a broker, the
	// connections to them, its processor's disk, or all processors. Every partition needs all brokers: one leads its
	// topics, others coordinate its group and its transactions.
	AwaySeconds float64  `json:"away_seconds"`
	Faults      []string `json:"faults"` // that were on, and when; the logs of processors have more (-keep)
	Seed        uint64   `json:"seed"`
}

// Beyond is how long the partition stood still although all that it needs was there.
func (s Stall) Beyond() time.Duration {
	return time.Duration((s.Seconds - s.AwaySeconds) * float64(time.Second))
}

func (s Stall) end() time.Time { return s.Begin.Add(time.Duration(s.Seconds * float64(time.Second))) }

// worst returns the longest stalls, leaving out what was away.
func worst(stalls []Stall) []Stall {
	slices.SortStableFunc(stalls, func(a, b Stall) int { return cmp.Compare(b.Beyond(), a.Beyond()) })
	return stalls[:min(stallsKept, len(stalls))]
}

// span is a time in which a fault was on, or in which it took something away.
type span struct {
	what       string
	away       bool
	begin, end time.Time
}

// timeline has the spans of an episode. The zero value is ready.
type timeline struct {
	mu    sync.Mutex
	spans []*span
}

func (t *timeline) start(what string, away bool) (over func()) {
	s := &span{what: what, away: away, begin: time.Now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans = append(t.spans, s)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if s.end.IsZero() {
			s.end = time.Now()
		}
	}
}

// explain adds to a stall the faults that were on, and for how long any took something away.
func (t *timeline) explain(s *Stall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	end := s.end()
	until, away := s.Begin, time.Duration(0) // spans are in the order of their begin
	for _, a := range t.spans {
		if a.begin.After(end) || !a.end.IsZero() && a.end.Before(s.Begin) {
			continue
		}
		last := end
		if !a.end.IsZero() && a.end.Before(end) {
			last = a.end
		}
		switch {
		case !a.away:
			s.Faults = append(s.Faults, fmt.Sprintf("%s (%+.1f s to %+.1f s)", a.what, a.begin.Sub(s.Begin).Seconds(),
				last.Sub(s.Begin).Seconds()))
		case last.After(until):
			if a.begin.After(until) {
				until = a.begin
			}
			away += last.Sub(until)
			until = last
		}
	}
	s.AwaySeconds = away.Seconds()
}
