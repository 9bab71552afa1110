package chaos

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// stallLimit is how long a partition may stand still beyond the time that a server which it needs is away.
	stallLimit  = sessionTimeout + 2*time.Second
	stallsKept  = 10
	stallLogged = 6 // lines of a partition's log that are kept with its stall
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
	Faults      []string `json:"faults"` // that were on
	Log         []string `json:"log"`    // what processors said of the partition
	Seed        uint64   `json:"seed"`
}

// Beyond is how long the partition stood still although all that it needs was there.
func (s Stall) Beyond() time.Duration {
	return time.Duration((s.Seconds - s.AwaySeconds) * float64(time.Second))
}

func (s Stall) String() string {
	return fmt.Sprintf("partition %d from %s: %.1f s, %.1f s beyond what was away; %s", s.Partition,
		s.Begin.UTC().Format(time.TimeOnly), s.Seconds, s.Beyond().Seconds(), strings.Join(s.Faults, ", "))
}

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
	end := s.Begin.Add(time.Duration(s.Seconds * float64(time.Second)))
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

// logOf returns the end of what processors said of a partition during a stall.
func (s *system) logOf(stall Stall) (lines []string) {
	end := stall.Begin.Add(time.Duration((stall.Seconds + 0.1) * float64(time.Second)))
	for _, u := range slices.Concat(s.processors, s.guests) {
		for line := range strings.Lines(u.logSince(0)) {
			var said struct {
				Time           time.Time
				Msg, Topic     string
				Partition      *int32
				Error, Reason  string
				Offset, Member any
			}
			if json.Unmarshal([]byte(line), &said) == nil && said.Partition != nil && *said.Partition == stall.Partition &&
				said.Time.After(stall.Begin) && said.Time.Before(end) {
				lines = append(lines, fmt.Sprintf("%+.1f s %v %s: %s %.200s", said.Time.Sub(stall.Begin).Seconds(), u,
					said.Topic, said.Msg, said.Error+said.Reason))
			}
		}
	}
	slices.SortFunc(lines, func(a, b string) int { return cmp.Compare(secondsOf(a), secondsOf(b)) })
	return lines[max(0, len(lines)-stallLogged):]
}

func secondsOf(line string) (seconds float64) {
	_, _ = fmt.Sscanf(line, "%g", &seconds)
	return seconds
}
