package bench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"kudos/bench/producer"
)

// reportVersion is of the JSON form: it changes when a field does.
const reportVersion = 1

// Report is all that was measured, each run for itself.
type Report struct {
	Version int       `json:"version"`
	Date    time.Time `json:"date"`
	Commit  string    `json:"commit"`
	Machine Machine   `json:"machine"`
	// Versions of servers and languages, by name.
	Versions map[string]string `json:"versions"`
	// Settings of servers and of the runs that a reader must know, by name.
	Settings map[string]string `json:"settings"`
	// Contenders are what each one is, by name.
	Contenders map[string]string `json:"contenders"`
	Runs       []Run             `json:"runs"`
}

// Run is one run of one contender. Exactly one of the results is there, or none and an error.
type Run struct {
	Round     int              `json:"round"`            // from 1
	Commit    string           `json:"commit,omitempty"` // if not the report's
	Contender string           `json:"contender"`
	Load      Workload         `json:"load"`
	Drain     *Drain           `json:"drain,omitempty"`
	Latency   *Latency         `json:"latency,omitempty"`
	Recovery  *Recovery        `json:"recovery,omitempty"`
	Producer  *producer.Result `json:"producer,omitempty"`
	// Error is why there is no result: in a run that failed, no figure counts.
	Error string `json:"error,omitempty"`
}

// NewReport is a report without runs.
func NewReport(commit string, contenders ...Contender) *Report {
	r := &Report{
		Version: reportVersion, Date: time.Now().UTC().Truncate(time.Second), Commit: commit, Machine: ThisMachine(),
		Versions: map[string]string{}, Settings: map[string]string{}, Contenders: map[string]string{},
	}
	for _, c := range contenders {
		r.Contenders[c.Name()] = c.About()
	}
	return r
}

// ReadReport reads a report from a file.
func ReadReport(path string) (*Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Version != reportVersion {
		return nil, fmt.Errorf("%s is of version %d, this program knows version %d: measure again", path, r.Version, reportVersion)
	}
	return &r, nil
}

// Add takes over the runs of another report: a measurement of hours may be made in parts, which must be of the same
// machine, and each run of one part only. What is measured again after the program has changed is of the later commit in
// all its rounds.
func (r *Report) Add(part *Report) error {
	if r.Machine != part.Machine {
		return fmt.Errorf("parts of one report are of the same machine: %+v is not %+v", part.Machine, r.Machine)
	}
	added := slices.Clone(part.Runs)
	for i := range added {
		run := &added[i]
		if run.Commit = cmp.Or(run.Commit, part.Commit); run.Commit == r.Commit {
			run.Commit = ""
		}
		for _, o := range r.Runs {
			if o.place() == run.place() {
				return fmt.Errorf("round %d, %s, %s is in more than one part", run.Round, run.Load.Shape.Name, run.Contender)
			}
			if o.measured() == run.measured() && o.Commit != run.Commit {
				return fmt.Errorf("%s is of commit %s in one part and of %s in another: its rounds are of the same program", run.measured(), cmp.Or(o.Commit, r.Commit), cmp.Or(run.Commit, r.Commit))
			}
		}
	}
	r.Runs = append(r.Runs, added...)
	maps.Copy(r.Versions, part.Versions)
	maps.Copy(r.Settings, part.Settings)
	maps.Copy(r.Contenders, part.Contenders)
	return nil
}

// measured says what a run is one of.
func (r *Run) measured() string {
	switch {
	case r.Drain != nil:
		return "draining"
	case r.Latency != nil:
		return "from publishing to visible"
	case r.Recovery != nil:
		return "recovery"
	case r.Producer != nil:
		return "accepting"
	}
	return "a run without a result"
}

// place is what there is one run of.
func (r *Run) place() string {
	return fmt.Sprint(r.Round, r.Contender, r.Load, r.measured())
}

// Write writes the report to a file, which is whole at any time.
func (r *Report) Write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = Replace(path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// Replace writes a file so that it is whole at any time.
func Replace(path string, text []byte) error {
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Failed is nil, or names the runs that failed, with the first line of why.
func (r *Report) Failed() error {
	var errs []error
	for _, run := range r.Runs {
		if run.Error != "" {
			why, _, _ := strings.Cut(run.Error, "\n")
			errs = append(errs, fmt.Errorf("round %d, %s, %s failed: %s", run.Round, run.Load.Shape.Name, run.Contender, why))
		}
	}
	return errors.Join(errs...)
}
