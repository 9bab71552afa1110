package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

type result struct {
	passed, failed map[string]int
	skipped        map[string]bool
	built, ended   bool
	output         strings.Builder
}

// event is a line of `go test -json` (go doc test2json).
type event struct{ Action, Test, Output, FailedBuild string }

func readResult(r io.Reader) (*result, error) {
	res := &result{passed: map[string]int{}, failed: map[string]int{}, skipped: map[string]bool{}, built: true}
	for d := json.NewDecoder(r); ; {
		var e event
		switch err := d.Decode(&e); {
		case err == io.EOF:
			return res, nil
		case err != nil:
			return nil, fmt.Errorf("reading the output of go test: %w", err)
		}
		res.output.WriteString(e.Output)
		switch {
		case e.Action == "build-fail" || e.FailedBuild != "":
			res.built = false
		case e.Test == "":
			res.ended = res.ended || e.Action == "pass" || e.Action == "fail" || e.Action == "skip" // of the package
		case e.Action == "pass":
			res.passed[e.Test]++
		case e.Action == "fail":
			res.failed[e.Test]++
		case e.Action == "skip":
			res.skipped[e.Test] = true
		}
	}
}

// baselineRuns is how often a test must pass without the mutant for its failure with the mutant to count.
const baselineRuns = 3

// reliable are the tests that passed every time without a mutant.
func (r *result) reliable() map[string]bool {
	tests := map[string]bool{}
	for name, n := range r.passed {
		tests[name] = n >= baselineRuns && r.failed[name] == 0 && !r.skipped[name]
	}
	return tests
}

// assess returns the outcome of a mutant whose test result is r, and the tests that caught it: those that failed
// themselves and were reliable without it. Any other failure proves nothing and must be examined.
func assess(reliable map[string]bool, r *result) (status string, by []string) {
	for _, name := range slices.Sorted(maps.Keys(r.failed)) {
		if reliable[name] && !hasFailedSubtest(r, name, reliable) {
			by = append(by, name)
		}
	}
	switch {
	case len(by) > 0:
		return caught, by
	case !r.built:
		return failure("does not build", r), nil
	case len(r.failed) > 0:
		return failure(fmt.Sprintf("only unreliable tests failed, which did not pass %d times without the mutant: %s",
			baselineRuns, strings.Join(slices.Sorted(maps.Keys(r.failed)), ", ")), r), nil
	case strings.Contains(r.output.String(), "panic: test timed out"):
		return failure("the tests timed out, and none had failed", r), nil
	case strings.Contains(r.output.String(), "panic: "), strings.Contains(r.output.String(), "fatal error: "):
		return failure("a panic outside of a test stopped all tests", r), nil
	case !r.ended:
		return failure("the tests did not finish", r), nil
	case len(r.passed) == 0:
		return failure("no test ran", r), nil
	}
	for name := range r.passed {
		if reliable[name] {
			return survived, nil
		}
	}
	return failure(fmt.Sprintf("no test passes %d times without the mutant", baselineRuns), r), nil
}

// hasFailedSubtest reports whether a reliable subtest failed, which is then reported instead.
func hasFailedSubtest(r *result, name string, reliable map[string]bool) bool {
	for other := range r.failed {
		if strings.HasPrefix(other, name+"/") && reliable[other] {
			return true
		}
	}
	return false
}

func failure(what string, r *result) string {
	text := r.output.String()
	return "ERROR: " + what + "\n" + text[max(0, len(text)-2000):]
}
