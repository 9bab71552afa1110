package chaos

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is the result of a run, and of earlier ones of the same build.
type Report struct {
	Build    string   `json:"build"`
	Seeds    []uint64 `json:"seeds"` // one per run
	Faults   int      `json:"faults"`
	Episodes int      `json:"episodes"`
	// Events are the records of likes that were folded and compared. Acknowledged are those that Kafka acknowledged to
	// the writers; Unanswered are the writes that got no response or an error.
	Events       int64    `json:"events"`
	Acknowledged int64    `json:"acknowledged"`
	Unanswered   int64    `json:"unanswered"`
	Differences  int      `json:"differences"`
	Details      []string `json:"details,omitempty"`
	// LongestStallSeconds is the longest time without progress of a partition's counts in MySQL while events arrived,
	// including the duration of the fault. LongestDrainSeconds is the longest time from the last event to lag 0.
	LongestStallSeconds float64      `json:"longest_stall_seconds"`
	LongestDrainSeconds float64      `json:"longest_drain_seconds"`
	Stalls              []Stall      `json:"stalls"` // the worst ones
	Kinds               []KindReport `json:"kinds"`

	Evidence map[string]int64 `json:"evidence"` // counts the effects of the faults
	// Torn are transactions that Kafka committed in one partition and aborted in another, repaired as kudos named.
	Torn            []string `json:"torn_by_kafka,omitempty"`
	Hung            []string `json:"hung_in_kafka,omitempty"` // group coordinators; each took a restart of its broker
	UnexpectedExits int      `json:"unexpected_exits"`        // of kudos processes, by themselves
	Seconds         float64  `json:"seconds"`

	Brokers    int   `json:"brokers"`
	Processors int   `json:"processors"`
	Readers    int   `json:"readers"`
	Partitions int32 `json:"partitions"`

	before *Report // of the earlier runs
}

// KindReport is the report of one kind of fault.
type KindReport struct {
	Name   string `json:"name"`
	What   string `json:"what"`
	Faults int    `json:"faults"`
	Missed int    `json:"missed"` // could not be injected, and do not count
}

func newReport(o Options, chosen []*kind) *Report {
	r := &Report{Build: o.Build, Evidence: map[string]int64{}, before: &Report{}}
	if o.Earlier != nil && o.Build != "" && o.Earlier.Build == o.Build {
		before := *o.Earlier
		*r, r.before = before, &before
	}
	r.Seeds = append(r.Seeds, o.Seed)
	r.Brokers, r.Processors, r.Readers, r.Partitions = 3, o.Processors, readers, o.Partitions
	for _, k := range chosen {
		if !slices.ContainsFunc(r.Kinds, func(have KindReport) bool { return have.Name == k.name }) {
			r.Kinds = append(r.Kinds, KindReport{Name: k.name, What: k.what})
		}
	}
	return r
}

// faults is the number of faults of this run alone.
func (r *Report) faults() int { return r.Faults - r.before.Faults }

func (r *Report) add(e *episode) {
	r.Episodes++
	r.Events = max(r.Events, r.before.Events+e.events)
	r.Differences += e.diffs.Total
	r.Details = append(r.Details, e.diffs.Details...)
	r.LongestStallSeconds = max(r.LongestStallSeconds, e.stall)
	r.Stalls = worst(append(r.Stalls, e.stalls...))
	r.LongestDrainSeconds = max(r.LongestDrainSeconds, e.drained.Seconds())
	for _, f := range e.faults {
		r.kind(f).Faults++
		r.Faults++
		for what, n := range f.shown {
			r.Evidence[what] += n
		}
	}
	for what, n := range e.said {
		r.Evidence[what] += int64(n)
	}
	if e.torn != "" {
		r.Torn = append(r.Torn, e.torn)
	}
	r.Hung = append(r.Hung, e.hung...)
	for _, f := range e.missed {
		r.kind(f).Missed++
	}
}

func (r *Report) finish(run *run) {
	r.Unanswered = r.before.Unanswered + run.load.failed.Load()
	r.Acknowledged = r.before.Acknowledged + run.acked
	r.Seconds = r.before.Seconds + time.Since(run.begin).Seconds()
	r.UnexpectedExits = r.before.UnexpectedExits + run.sys.exits()
	r.Evidence["partition positions rewound by a MySQL failover"] += run.watch.regressed.Swap(0)
}

func (r *Report) kind(f *fault) *KindReport {
	i := slices.IndexFunc(r.Kinds, func(k KindReport) bool { return k.Name == f.kind.name })
	return &r.Kinds[i]
}

// Line is a one-line summary.
func (r *Report) Line() string {
	return fmt.Sprintf("faults %d events %d differences %d", r.Faults, r.Events, r.Differences)
}

// WriteTable writes the report in Markdown.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "|fault|what|faults|\n|---|---|---:|\n")
	for _, k := range r.Kinds {
		fmt.Fprintf(&b, "|%s|%s|%d|\n", k.Name, k.What, k.Faults)
	}
	fmt.Fprintf(&b, "|**all**|build %s, seeds %v: %d episodes, %.0f minutes|**%d**|\n\n",
		r.Build, r.Seeds, r.Episodes, r.Seconds/60, r.Faults)
	fmt.Fprintf(&b, "|counted| |\n|---|---:|\n")
	for _, row := range []struct {
		what string
		n    int64
	}{
		{"events folded and compared", r.Events},
		{"acknowledged events found in the log", r.Acknowledged},
		{"events without an acknowledgment", r.Unanswered},
		{"**differences**", int64(r.Differences)},
		{"kudos processes that exited by themselves and were restarted", int64(r.UnexpectedExits)},
		{"transactions torn by Kafka (below); each parked a partition until the named action", int64(len(r.Torn))},
		{"group coordinators that hung in Kafka; each took a restart of its broker", int64(len(r.Hung))},
	} {
		fmt.Fprintf(&b, "|%s|%d|\n", row.what, row.n)
	}
	for _, what := range slices.Sorted(maps.Keys(r.Evidence)) {
		fmt.Fprintf(&b, "|%s|%d|\n", what, r.Evidence[what])
	}
	b.WriteString("\n|longest stalls|of it away|not away|strikes|faults that were on|\n")
	b.WriteString("|---:|---:|---:|---:|---|\n")
	for _, s := range r.Stalls {
		fmt.Fprintf(&b, "|%.1f s|%.1f s|%.1f s|%d|%s|\n", s.Seconds, s.AwaySeconds, s.Beyond(), s.Strikes,
			strings.Join(s.Faults, ", "))
	}
	for i, where := range r.Torn {
		fmt.Fprintf(&b, "\nTorn by Kafka, %d: %s.\n", i+1, where)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
