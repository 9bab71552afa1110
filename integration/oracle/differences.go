package oracle

import (
	"fmt"
	"slices"
	"strings"
)

const shown = 10

// Differences are the violations found. All are counted, the first ones of each rule are reported in words.
type Differences struct {
	Total   int
	Details []string

	byRule map[string]int
}

// Add adds a difference: the rule that it violates, and how.
func (d *Differences) Add(rule, format string, args ...any) {
	if d.byRule == nil {
		d.byRule = map[string]int{}
	}
	d.Total++
	if d.byRule[rule]++; d.byRule[rule] <= shown {
		d.Details = append(d.Details, rule+" "+fmt.Sprintf(format, args...))
	}
}

// Of is the number of differences of one rule.
func (d *Differences) Of(rule string) int { return d.byRule[rule] }

// String returns the number of differences and all reported ones.
func (d *Differences) String() string {
	if d.Total == 0 {
		return "no differences"
	}
	return fmt.Sprintf("%d differences, of which:\n  %s", d.Total, strings.Join(d.Details, "\n  "))
}

// Compare adds the differences between two maps; a missing key means the zero value.
func Compare[K, V comparable](d *Differences, rule, what string, want, have map[K]V) {
	var zero V
	var lines []string
	differ := func(k K, w, h V) { lines = append(lines, fmt.Sprintf("%s: %+v: want %+v, have %+v", what, k, w, h)) }
	for k, w := range want {
		if h := have[k]; h != w {
			differ(k, w, h)
		}
	}
	for k, h := range have {
		if _, ok := want[k]; !ok && h != zero {
			differ(k, zero, h)
		}
	}
	slices.Sort(lines)
	for _, line := range lines {
		d.Add(rule, "%s", line)
	}
}
