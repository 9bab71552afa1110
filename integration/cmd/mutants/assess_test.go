package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// output builds the output of `go test -json` for events such as "pass TestA", or "fail" for the package.
func output(t *testing.T, text string, events ...string) *result {
	t.Helper()
	var b strings.Builder
	for _, line := range append([]string{"output"}, events...) {
		var e event
		e.Action, e.Test, _ = strings.Cut(line, " ")
		if line == "output" {
			e.Output = text
		}
		require.NoError(t, json.NewEncoder(&b).Encode(e))
	}
	r, err := readResult(strings.NewReader(b.String()))
	require.NoError(t, err)
	return r
}

func TestAssess(t *testing.T) {
	baseline := func() *result {
		var events []string
		for range baselineRuns {
			events = append(events, "pass TestA", "pass TestB/x", "pass TestB/y", "pass TestB", "skip TestSkipped")
		}
		return output(t, "", append(events, "pass TestFlaky", "fail TestFlaky", "pass TestFlaky", "pass TestSeldom", "fail")...)
	}()
	reliable := baseline.reliable()
	for name, c := range map[string]struct {
		output string
		events []string
		status string
		by     []string
	}{
		"a test fails":                         {"", []string{"fail TestA", "pass TestB", "fail"}, caught, []string{"TestA"}},
		"the innermost test is reported":       {"", []string{"pass TestA", "pass TestB/x", "fail TestB/y", "fail TestB", "fail"}, caught, []string{"TestB/y"}},
		"a new subtest: its test is reported":  {"", []string{"fail TestB/z", "fail TestB", "fail"}, caught, []string{"TestB"}},
		"all tests that caught it":             {"", []string{"fail TestA", "fail TestB", "fail"}, caught, []string{"TestA", "TestB"}},
		"a test fails, then another hangs":     {"panic: test timed out after 1s", []string{"fail TestA", "fail"}, caught, []string{"TestA"}},
		"panic within a test":                  {"panic: boo", []string{"fail TestA", "fail"}, caught, []string{"TestA"}},
		"all pass":                             {"", []string{"pass TestA", "pass TestB", "pass"}, survived, nil},
		"all pass, but the package fails":      {"exit status 1", []string{"pass TestA", "fail"}, survived, nil},
		"an unreliable test fails":             {"", []string{"pass TestA", "fail TestFlaky", "fail"}, "ERROR: only unreliable tests failed, which did not pass 3 times", nil},
		"a test that passed once fails":        {"", []string{"pass TestA", "fail TestSeldom", "fail"}, "ERROR: only unreliable tests failed, which did not pass 3 times", nil},
		"a new test fails":                     {"", []string{"pass TestA", "fail TestOther", "fail"}, "ERROR: only unreliable tests failed, which did not pass 3 times", nil},
		"does not build":                       {"undefined: x", []string{"build-fail", "fail"}, "ERROR: does not build", nil},
		"panic outside of a test":              {"panic: boo", []string{"pass TestA", "fail"}, "ERROR: a panic outside of a test", nil},
		"fatal error outside of a test":        {"fatal error: all goroutines are asleep", []string{"pass TestA", "fail"}, "ERROR: a panic outside of a test", nil},
		"hangs":                                {"panic: test timed out after 1s", []string{"pass TestA", "fail"}, "ERROR: the tests timed out", nil},
		"killed":                               {"", []string{"pass TestA"}, "ERROR: the tests did not finish", nil},
		"no test":                              {"testing: warning: no tests to run", []string{"pass"}, "ERROR: no test ran", nil},
		"only an unreliable test ran":          {"", []string{"pass TestFlaky", "pass"}, "ERROR: no test passes 3 times", nil},
		"only a skipped test":                  {"", []string{"skip TestSkipped", "pass"}, "ERROR: no test ran", nil},
		"a test fails that was skipped before": {"", []string{"fail TestSkipped", "fail"}, "ERROR: only unreliable tests failed", nil},
	} {
		t.Run(name, func(t *testing.T) {
			status, by := assess(reliable, output(t, c.output, c.events...))
			require.Equal(t, c.by, by)
			if strings.HasPrefix(c.status, "ERROR") {
				require.True(t, strings.HasPrefix(status, c.status), status)
				require.Contains(t, status, c.output, "the output to investigate")
				return
			}
			require.Equal(t, c.status, status)
		})
	}
}

func TestGarbageIsNoResult(t *testing.T) {
	_, err := readResult(strings.NewReader("{\"Action\":\"pass\",\"Test\":\"TestA\"}\nno JSON"))
	require.ErrorContains(t, err, "reading the output of go test")
}
