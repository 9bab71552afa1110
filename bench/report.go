package bench

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"kudos/bench/producer"
)

// ReportVersion is the version of the JSON form. It changes when a field does, not when one is added.
const ReportVersion = 1

// DefaultBroker is the configuration of a broker as shipped.
const DefaultBroker = "default"

// Report holds everything that was measured, run by run.
type Report struct {
	Version    int               `json:"version"`
	Date       time.Time         `json:"date"`
	Commit     string            `json:"commit"`
	Machine    Machine           `json:"machine"`
	Versions   map[string]string `json:"versions"`   // of servers and languages, by name
	Settings   map[string]string `json:"settings"`   // of servers and runs that affect the figures, by name
	Contenders map[string]string `json:"contenders"` // their descriptions, by name
	Runs       []Run             `json:"runs"`
}

// Run is one run of one contender. It has exactly one result, or an error.
type Run struct {
	Round     int    `json:"round"`            // from 1
	Commit    string `json:"commit,omitempty"` // if it differs from the report's
	Contender string `json:"contender"`
	Broker    string `json:"broker,omitempty"` // its configuration; empty: the default
	// Processes are what ran on the machine, LoadAverage is its load at the start. Earlier reports lack both.
	Processes   []string `json:"processes,omitempty"`
	LoadAverage float64  `json:"load_average,omitempty"`

	Load     Workload         `json:"load"`
	Drain    *Drain           `json:"drain,omitempty"`
	Latency  *Latency         `json:"latency,omitempty"`
	Recovery *Recovery        `json:"recovery,omitempty"`
	Producer *producer.Result `json:"producer,omitempty"`
	Error    string           `json:"error,omitempty"` // why the run failed; none of its figures count
}

// Label names the contender, and the broker's configuration unless it is the default.
func (r *Run) Label() string {
	if r.Broker == "" || r.Broker == DefaultBroker {
		return r.Contender
	}
	return r.Contender + ", " + r.Broker + " broker"
}

// NewReport returns a report without runs.
func NewReport(commit string, contenders ...Contender) *Report {
	r := &Report{
		Version: ReportVersion, Date: time.Now().UTC().Truncate(time.Second), Commit: commit, Machine: thisMachine(),
		Versions: map[string]string{}, Settings: map[string]string{}, Contenders: map[string]string{},
	}
	for _, c := range contenders {
		r.Contenders[c.Name()] = c.About()
	}
	return r
}

// Failed returns nil, or an error that names the failed runs and the first line of each error.
func (r *Report) Failed() error {
	var errs []error
	for _, run := range r.Runs {
		if run.Error != "" {
			why, _, _ := strings.Cut(run.Error, "\n")
			errs = append(errs, fmt.Errorf("round %d, %s, %s failed: %s",
				run.Round, run.Load.Shape.Name, run.Contender, why))
		}
	}
	return errors.Join(errs...)
}

// String returns a one-line summary.
func (r *Run) String() string {
	switch {
	case r.Drain != nil:
		return inALine("counted", drainFigures, r.Drain)
	case r.Recovery != nil:
		return inALine("recovered", RecoveryFigures, r.Recovery)
	case r.Producer != nil:
		return inALine("single likes", AcceptingFigures, &r.Producer.Single) +
			inALine("; batches", AcceptingFigures, &r.Producer.Batch)
	}
	text := ""
	if r.Latency.Sustainable != nil {
		text = inALine("sustainable", SustainableFigures, r.Latency) + "; "
	}
	for i := range r.Latency.Levels {
		text += inALine(r.Latency.Levels[i].Load(), LatencyFigures, &r.Latency.Levels[i]) + "; "
	}
	return text
}

func inALine[T any](of string, figures []Figure[T], result T) string {
	for _, f := range figures {
		if v := f.Of(result); !math.IsNaN(v) {
			of += fmt.Sprintf(", %s %s %s", f.Name, Number(v), f.Unit)
		}
	}
	return of
}

// WriteText writes the figures of one contender as a table for a terminal.
func (r *Report) WriteText(w io.Writer, contender string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, load := range r.Drained() {
		section(t, "DRAIN\t"+load.Describe(), drainFigures, func(of func(*Drain) float64) Stat {
			return r.Drains(load.Shape.Name, contender, of)
		})
	}
	section(t, "SUSTAINABLE\tp99 in MySQL is 1 s at most and does not rise", SustainableFigures,
		func(of func(*Latency) float64) Stat { return r.Sustained(contender, of) })
	for _, load := range r.LatencyLoads() {
		section(t, "LATENCY\t"+load, LatencyFigures, func(of func(*LatencyLevel) float64) Stat {
			return r.Latencies(contender, load, of)
		})
	}
	section(t, "RECOVERY\twithout local state", RecoveryFigures, r.Recoveries)
	if first := r.Accepted(); first != nil {
		shape := first.Load.Shape
		title := fmt.Sprintf("ACCEPTING\t%s posts, %s", Number(float64(shape.Posts)), shape.InPartitions())
		for i, e := range first.Producer.Endpoints() {
			section(t, title+", "+RequestsOf(e), AcceptingFigures, func(of func(*producer.Endpoint) float64) Stat {
				return r.Accepting(i, of)
			})
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}

// section writes the figures that have a value, after a title.
func section[T any](w io.Writer, title string, figures []Figure[T], stat func(of func(T) float64) Stat) {
	for _, f := range figures {
		if s := stat(f.Of); s.Rounds > 0 {
			if title != "" {
				fmt.Fprintln(w, title)
			}
			title = ""
			fmt.Fprintf(w, "  %s\t%s %s\n", f.Name, s.With(""), f.Unit)
		}
	}
}

var drainFigures = []Figure[*Drain]{
	{"counted", "events/s", func(d *Drain) float64 { return d.EventsPerSecond }},
	{"CPU of the processor", "s per 10⁶ events", CPUPerMillion(ContenderProcess)},
	{"its peak memory", "MiB", PeakMiB(ContenderProcess)},
	{"rows written to MySQL", "per event", (*Drain).RowsPerEvent},
	{"state on disk, compacted", "bytes per pair", (*Drain).BytesPerPair},
}

// Describe describes a workload in words.
func (w Workload) Describe() string {
	spread := "all alike"
	if w.Shape.Skewed {
		spread = "Zipf"
	}
	posts := Number(float64(w.Shape.Posts)) + " posts, " + spread
	if w.Shape.Posts == 1 {
		posts = "one post"
	}
	return fmt.Sprintf("%s: %s, %s, seed %d", w.Shape.Name, posts, w.Shape.InPartitions(), w.Seed)
}

// InPartitions says the number of partitions in words.
func (s Shape) InPartitions() string {
	if s.Partitions == 1 {
		return "1 partition"
	}
	return fmt.Sprintf("%d partitions", s.Partitions)
}

// RequestsOf says what one request to an endpoint contains.
func RequestsOf(e *producer.Endpoint) string {
	if e.LikesPerRequest == 1 {
		return "single likes"
	}
	return "batches of " + Number(float64(e.LikesPerRequest))
}
