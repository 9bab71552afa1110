package creep

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
)

const (
	// moreAllowed is how much more an event may cost. Repeated counts are within 1 %, and 6 % for writes to a store.
	moreAllowed = 0.10
	// lessAllowed is how much less. A record far above the actual cost would let that much creep back unnoticed.
	lessAllowed        = 0.15
	allocationsAllowed = 2.0 // per repetition: noise, such as an additional buffer or a map that grew
)

// Figures are the cost of an event in one workload.
type Figures struct {
	InstructionsPerEvent     float64 `json:"instructions_per_event"`
	AllocationsPer1000Events float64 `json:"allocations_per_1000_events"`
}

// Record has the last figures, and the Go version that they are for.
type Record struct {
	Go        string             `json:"go"`
	Arch      string             `json:"arch"`
	Workloads map[string]Figures `json:"workloads"`
}

// NewRecord returns a record for this process's Go version.
func NewRecord(counted map[string]Figures) *Record {
	rounded := map[string]Figures{}
	for name, f := range counted {
		rounded[name] = Figures{round(f.InstructionsPerEvent), round(f.AllocationsPer1000Events)}
	}
	return &Record{Go: runtime.Version(), Arch: runtime.GOARCH, Workloads: rounded}
}

func round(f float64) float64 { return math.Round(f*10) / 10 }

// ReadRecord reads a record written by WriteFile.
func ReadRecord(path string) (*Record, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the record: %w", err)
	}
	r := new(Record)
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(r); err != nil {
		return nil, fmt.Errorf("reading the record %s: %w", path, err)
	}
	return r, nil
}

// WriteFile writes the record.
func (r *Record) WriteFile(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the record: %w", err)
	}
	return nil
}

// Compare describes the figures that differ too much from the record.
func (r *Record) Compare(now *Record, workloads []Workload) (creep []string) {
	names := map[string]bool{}
	for _, w := range workloads {
		names[w.Name] = true
		before, known := r.Workloads[w.Name]
		if !known {
			creep = append(creep, w.Name+" is not in the record")
			continue
		}
		is := now.Workloads[w.Name]
		creep = append(creep, assess(w.Name, "instructions per event", before.InstructionsPerEvent,
			is.InstructionsPerEvent, 1)...)
		// allocationsAllowed per repetition, converted to 1,000 events.
		slack := allocationsAllowed / float64(w.Events) * 1000
		creep = append(creep, assess(w.Name, "allocations per 1,000 events", before.AllocationsPer1000Events,
			is.AllocationsPer1000Events, slack)...)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Workloads)) {
		if !names[name] {
			creep = append(creep, name+" is in the record, but is not measured")
		}
	}
	return creep
}

// assess says what is wrong with a figure, if anything. A difference up to slack is always accepted.
func assess(workload, unit string, before, now, slack float64) []string {
	switch {
	case math.Abs(now-before) <= slack:
		return nil
	case now > before*(1+moreAllowed):
		return []string{fmt.Sprintf("%s costs %.1f %s, the record has %.1f: more than %.0f %% above", workload, now,
			unit, before, moreAllowed*100)}
	case now < before*(1-lessAllowed):
		return []string{fmt.Sprintf("%s costs only %.1f %s, the record has %.1f: update the record, so that a "+
			"regression is noticed", workload, now, unit, before)}
	}
	return nil
}

// Advice says what to do about differences.
func (r *Record) Advice(now *Record) string {
	advice := "If this is intended: make creep, and commit integration/creep/record.json with the reason."
	if r.Go != now.Go {
		advice = fmt.Sprintf("The record is for %s, this is %s: the compiler alone may explain it. ", r.Go,
			now.Go) + advice
	}
	return advice
}
