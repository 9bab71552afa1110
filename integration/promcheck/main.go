// Command promcheck parses alert rules and dashboards like Prometheus, and prints the names of the metrics that they
// query, one per line. A parse error is reported with its location.
//
//	promcheck kudos.rules.yaml kudos.json
//
// It is a separate module, to keep the dependency on Prometheus out of the program.
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

type expression struct{ who, text string }

func main() {
	names := map[string]bool{}
	var errs []error
	for _, path := range os.Args[1:] {
		read := dashboardExpressions
		if filepath.Ext(path) != ".json" {
			read = ruleExpressions
		}
		all, err := read(path)
		if err == nil && len(all) == 0 {
			err = errors.New("no queries")
		}
		for _, e := range all {
			parsed, parseErr := parser.ParseExpr(e.text)
			if parseErr != nil {
				err = errors.Join(err, fmt.Errorf("%q: %w", e.who, parseErr))
				continue
			}
			parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
				if v, ok := n.(*parser.VectorSelector); ok {
					names[v.Name] = true
				}
				return nil
			})
		}
		if err != nil {
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

func ruleExpressions(path string) (all []expression, err error) {
	groups, errs := rulefmt.ParseFile(path, false, model.UTF8Validation)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			all = append(all, expression{r.Alert, r.Expr})
		}
	}
	return all, nil
}

func dashboardExpressions(path string) (all []expression, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	err = json.Unmarshal(text, &dashboard)
	for _, p := range dashboard.Panels {
		for _, t := range p.Targets {
			// Grafana replaces the variable with a duration.
			all = append(all, expression{p.Title, strings.ReplaceAll(t.Expr, "$__rate_interval", "5m")})
		}
	}
	return all, err
}
