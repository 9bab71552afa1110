package chaos

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is the result of a run.
type Report struct {
	Seed     uint64 `json:"seed"`
	Faults   int    `json:"faults"`
	Episodes int    `json:"episodes"`
	// Events are the records of likes that were folded and compared. Acknowledged are those that Kafka acknowledged to
	// the writers; Unanswered are the writes that got no response or an error.
	Events       int64 `json:"events"`
	Acknowledged int64 `json:"acknowledged"`
	Unanswered   int64 `json:"unanswered"`
	Differences  int   `json:"differences"`
	// Told are the first differences, in words.
	Told []string `json:"told,omitempty"`
	// LongestStallSeconds is the longest time without progress of a partition's counts in MySQL while events arrived,
	// including the duration of the fault. LongestDrainSeconds is the longest time from the last event to lag 0.
	LongestStallSeconds float64      `json:"longest_stall_seconds"`
	LongestDrainSeconds float64      `json:"longest_drain_seconds"`
	Kinds               []KindReport `json:"kinds"`
	// Evidence counts the effects of the faults.
	Evidence map[string]int64 `json:"evidence"`
	// Torn are transactions that Kafka itself committed in one partition and aborted in another. The partition parked,
	// and was repaired by the action that kudos named.
	Torn []string `json:"torn_by_kafka,omitempty"`
	// UnexpectedExits are the kudos processes that exited by themselves.
	UnexpectedExits int     `json:"unexpected_exits"`
	Seconds         float64 `json:"seconds"`
	// What ran.
	Brokers    int   `json:"brokers"`
	Processors int   `json:"processors"`
	Partitions int32 `json:"partitions"`
}

// KindReport is the report of one kind of fault.
type KindReport struct {
	Name   string `json:"name"`
	What   string `json:"what"`
	Faults int    `json:"faults"`
	// Missed faults could not be injected, and do not count.
	Missed int `json:"missed"`
	// LongestStallSeconds is that of the kind's episodes, which have other faults too.
	LongestStallSeconds float64 `json:"longest_stall_seconds"`
}

func newReport(o Options, chosen []*kind) *Report {
	r := &Report{Seed: o.Seed, Evidence: map[string]int64{}, Brokers: 3, Processors: o.Processors,
		Partitions: o.Partitions}
	for _, k := range chosen {
		r.Kinds = append(r.Kinds, KindReport{Name: k.name, What: k.what})
	}
	return r
}

func (r *Report) add(e *episode) {
	r.Episodes++
	r.Events = max(r.Events, e.events)
	r.Differences += e.diffs.Total
	r.Told = append(r.Told, e.diffs.Told...)
	r.LongestStallSeconds = max(r.LongestStallSeconds, e.stall.Seconds())
	r.LongestDrainSeconds = max(r.LongestDrainSeconds, e.drained.Seconds())
	for _, f := range e.faults {
		k := r.kind(f)
		k.Faults++
		k.LongestStallSeconds = max(k.LongestStallSeconds, e.stall.Seconds())
		r.Faults++
		for what, n := range f.shown {
			r.Evidence[what] += n
		}
	}
	if e.torn != "" {
		r.Torn = append(r.Torn, e.torn)
	}
	for _, f := range e.missed {
		r.kind(f).Missed++
	}
}

// finish sets what is counted over the whole run.
func (r *Report) finish(run *run) {
	r.Unanswered = run.load.failed.Load()
	r.Acknowledged = run.acked
	r.Seconds = time.Since(run.begin).Seconds()
	r.UnexpectedExits = run.sys.exits()
	r.Evidence["times that a failover moved a partition of MySQL back"] = run.watch.regressed.Load()
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
	fmt.Fprintf(&b, "| fault | what | faults | longest stall |\n|---|---|---:|---:|\n")
	for _, k := range r.Kinds {
		fmt.Fprintf(&b, "| %s | %s | %d | %.1f s |\n", k.Name, k.What, k.Faults, k.LongestStallSeconds)
	}
	fmt.Fprintf(&b, "| **all** | %d episodes, %.0f minutes | **%d** | **%.1f s** |\n\n", r.Episodes, r.Seconds/60,
		r.Faults, r.LongestStallSeconds)
	fmt.Fprintf(&b, "| counted | |\n|---|---:|\n")
	for _, row := range []struct {
		what string
		n    int64
	}{
		{"events folded and compared", r.Events},
		{"of them acknowledged to a writer, and found in the log", r.Acknowledged},
		{"events without an acknowledgement", r.Unanswered},
		{"**differences**", int64(r.Differences)},
		{"processes of kudos that ended by themselves, and were started again", int64(r.UnexpectedExits)},
		{"transactions torn by Kafka (below), which parked a partition until the named remedy", int64(len(r.Torn))},
	} {
		fmt.Fprintf(&b, "| %s | %d |\n", row.what, row.n)
	}
	for _, what := range slices.Sorted(maps.Keys(r.Evidence)) {
		fmt.Fprintf(&b, "| %s | %d |\n", what, r.Evidence[what])
	}
	for i, where := range r.Torn {
		fmt.Fprintf(&b, "\nTorn by Kafka, %d: %s.\n", i+1, where)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
