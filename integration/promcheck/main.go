// Command promcheck reads alert rules and dashboards as Prometheus does, and prints the names
// of the metrics that they ask for, one a line. What cannot be read is an error, with its place.
//
//	promcheck kudos.rules.yaml kudos.json
//
// It is a module of its own: Prometheus' code is for this, and not for the program.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	names := map[string]bool{}
	var errs []error
	for _, path := range os.Args[1:] {
		read := readDashboard
		if filepath.Ext(path) != ".json" {
			read = readRules
		}
		if err := read(path, names); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Println(name)
	}
}

func readRules(path string, names map[string]bool) error {
	groups, errs := rulefmt.ParseFile(path, false, model.UTF8Validation)
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if err := addNames(r.Expr, names); err != nil {
				return fmt.Errorf("%s: %w", r.Alert, err)
			}
		}
	}
	return nil
}

// dashboard is what Grafana's JSON has of expressions.
type dashboard struct {
	Panels []struct {
		Title   string `json:"title"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
}

func readDashboard(path string, names map[string]bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	found := 0
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			found++
			// Grafana fills it in with a duration.
			if err := addNames(strings.ReplaceAll(t.Expr, "$__rate_interval", "5m"), names); err != nil {
				return fmt.Errorf("panel %q: %w", p.Title, err)
			}
		}
	}
	if found == 0 {
		return errors.New("no panel asks for anything")
	}
	return nil
}

func addNames(expr string, names map[string]bool) error {
	parsed, err := parser.ParseExpr(expr)
	if err != nil {
		return err
	}
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			names[v.Name] = true
		}
		return nil
	})
	return nil
}
