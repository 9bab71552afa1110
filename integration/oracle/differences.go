package oracle

import (
	"fmt"
	"slices"
	"strings"
)

// shown is how many differences of one kind are told in words.
const shown = 10

// Differences are what was found wrong: all are counted, the first of each kind told.
type Differences struct {
	Total int
	// Told is what there is to read, a line each.
	Told []string

	byRule map[string]int
}

// Add notes a difference: which rule it breaks, and how.
func (d *Differences) Add(rule, format string, args ...any) {
	if d.byRule == nil {
		d.byRule = map[string]int{}
	}
	d.Total++
	if d.byRule[rule]++; d.byRule[rule] <= shown {
		d.Told = append(d.Told, rule+" "+fmt.Sprintf(format, args...))
	}
}

// Of is how many were found of one rule.
func (d *Differences) Of(rule string) int { return d.byRule[rule] }

// String is all that there is to read.
func (d *Differences) String() string {
	if d.Total == 0 {
		return "no differences"
	}
	return fmt.Sprintf("%d differences, of which:\n  %s", d.Total, strings.Join(d.Told, "\n  "))
}

// Compare notes how two maps differ; a key that is missing stands for the zero value.
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
