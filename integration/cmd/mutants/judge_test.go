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

func TestJudge(t *testing.T) {
	baseline := func() *result {
		var events []string
		for range baselineRuns {
			events = append(events, "pass TestA", "pass TestB/x", "pass TestB/y", "pass TestB", "skip TestSkipped")
		}
		return output(t, "", append(events, "pass TestFlaky", "fail TestFlaky", "pass TestFlaky", "pass TestSeldom", "fail")...)
	}()
	reliable := baseline.reliable()
	for name, c := range map[string]struct {
		output  string
		events  []string
		verdict string
		by      []string
	}{
		"a named test fails":                 {"", []string{"fail TestA", "pass TestB", "fail"}, caught, []string{"TestA"}},
		"the innermost is named":             {"", []string{"pass TestA", "pass TestB/x", "fail TestB/y", "fail TestB", "fail"}, caught, []string{"TestB/y"}},
		"a new subtest: its test is named":   {"", []string{"fail TestB/z", "fail TestB", "fail"}, caught, []string{"TestB"}},
		"all that caught it":                 {"", []string{"fail TestA", "fail TestB", "fail"}, caught, []string{"TestA", "TestB"}},
		"fails, and then another hangs":      {"panic: test timed out after 1s", []string{"fail TestA", "fail"}, caught, []string{"TestA"}},
		"panics within a test":               {"panic: boo", []string{"fail TestA", "fail"}, caught, []string{"TestA"}},
		"all pass":                           {"", []string{"pass TestA", "pass TestB", "pass"}, survived, nil},
		"all pass, but the package fails":    {"exit status 1", []string{"pass TestA", "fail"}, survived, nil},
		"one that is not reliable fails":     {"", []string{"pass TestA", "fail TestFlaky", "fail"}, "ERROR: only tests failed that did not pass 3 times", nil},
		"one fails that passed once":         {"", []string{"pass TestA", "fail TestSeldom", "fail"}, "ERROR: only tests failed that did not pass 3 times", nil},
		"one fails that was not there":       {"", []string{"pass TestA", "fail TestOther", "fail"}, "ERROR: only tests failed that did not pass 3 times", nil},
		"does not build":                     {"undefined: x", []string{"build-fail", "fail"}, "ERROR: does not build", nil},
		"panics outside of a test":           {"panic: boo", []string{"pass TestA", "fail"}, "ERROR: a panic outside of a test", nil},
		"a fatal error, outside of a test":   {"fatal error: all goroutines are asleep", []string{"pass TestA", "fail"}, "ERROR: a panic outside of a test", nil},
		"hangs":                              {"panic: test timed out after 1s", []string{"pass TestA", "fail"}, "ERROR: the tests did not end in time", nil},
		"killed":                             {"", []string{"pass TestA"}, "ERROR: the tests did not end", nil},
		"no test":                            {"testing: warning: no tests to run", []string{"pass"}, "ERROR: no test ran", nil},
		"only one ran that is not reliable":  {"", []string{"pass TestFlaky", "pass"}, "ERROR: no test that passes 3 times", nil},
		"only what is skipped":               {"", []string{"skip TestSkipped", "pass"}, "ERROR: no test ran", nil},
		"fails where it was skipped without": {"", []string{"fail TestSkipped", "fail"}, "ERROR: only tests failed", nil},
	} {
		t.Run(name, func(t *testing.T) {
			verdict, by := judge(reliable, output(t, c.output, c.events...))
			require.Equal(t, c.by, by)
			if strings.HasPrefix(c.verdict, "ERROR") {
				require.True(t, strings.HasPrefix(verdict, c.verdict), verdict)
				require.Contains(t, verdict, c.output, "what there is to look at")
				return
			}
			require.Equal(t, c.verdict, verdict)
		})
	}
}

func TestGarbageIsNoResult(t *testing.T) {
	_, err := readResult(strings.NewReader("{\"Action\":\"pass\",\"Test\":\"TestA\"}\nno JSON"))
	require.ErrorContains(t, err, "reading the output of go test")
}
