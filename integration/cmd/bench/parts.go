package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"kudos/bench"
)

func (s *settings) render(parts []string) error {
	var whole *bench.Report
	for _, path := range parts {
		part, err := readReport(path)
		if err != nil {
			return err
		}
		if whole == nil {
			whole = part
		} else if err := addPart(whole, part); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if whole == nil {
		return errors.New("-render: no files")
	}
	return s.write(whole)
}

func readReport(path string) (*bench.Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r bench.Report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Version != bench.ReportVersion {
		return nil, fmt.Errorf("%s has version %d, but this program requires version %d: measure again",
			path, r.Version, bench.ReportVersion)
	}
	return &r, nil
}

// addPart adds the runs of another report: hours of measurement may be made in parts, all on the same machine, each run
// in one part. A measurement repeated after a change of the program replaces all its rounds with the later commit's.
func addPart(r, part *bench.Report) error {
	if r.Machine != part.Machine {
		return fmt.Errorf("the parts must be from the same machine: %+v is not %+v", part.Machine, r.Machine)
	}
	added := slices.Clone(part.Runs)
	for i := range added {
		run := &added[i]
		if run.Commit = cmp.Or(run.Commit, part.Commit); run.Commit == r.Commit {
			run.Commit = ""
		}
		for _, o := range r.Runs {
			same := measured(&o) == measured(run)
			if same && o.Round == run.Round && o.Label() == run.Label() && o.Load == run.Load {
				return fmt.Errorf("round %d, %s, %s is in more than one part",
					run.Round, run.Load.Shape.Name, run.Label())
			}
			if same && o.Commit != run.Commit {
				return fmt.Errorf("%s is from commit %s in one part and from %s in another: its rounds must "+
					"have the same commit", measured(run), cmp.Or(o.Commit, r.Commit), cmp.Or(run.Commit, r.Commit))
			}
		}
	}
	r.Runs = append(r.Runs, added...)
	maps.Copy(r.Versions, part.Versions)
	maps.Copy(r.Settings, part.Settings)
	maps.Copy(r.Contenders, part.Contenders)
	return nil
}

func measured(r *bench.Run) string {
	switch {
	case r.Drain != nil:
		return "draining"
	case r.Latency != nil && r.Latency.Sustainable != nil:
		return "sustainable rate"
	case r.Latency != nil:
		return "latency"
	case r.Recovery != nil:
		return "recovery"
	case r.Producer != nil:
		return "accepting"
	}
	return "a run without a result"
}

func (s *settings) write(r *bench.Report) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = replace(s.json, string(data)+"\n")
	}
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	text, err := markdown(r)
	if err == nil {
		err = replace(s.markdown, text)
	}
	if err != nil {
		return fmt.Errorf("writing the tables: %w", err)
	}
	return nil
}

func replace(path, text string) error {
	if path == "" {
		return nil
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
