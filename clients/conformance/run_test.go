package conformance

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// check runs the cases against the test's own testee.
func check(t *testing.T, wrong, only string) (*Report, error) {
	t.Helper()
	var stderr bytes.Buffer
	opts := Options{Command: command(wrong), Cases: Select(regexp.MustCompile(only)), Timeout: CaseTimeout,
		Stderr: &stderr, Done: func() {}}
	if wrong == "never answers" || wrong == "no CR LF" {
		opts.Timeout = 3 * time.Second
	}
	report, err := Run(t.Context(), opts)
	require.NotContains(t, stderr.String(), "panic")
	return report, err
}

// command is the command of the test's own testee.
func command(wrong string) []string { return []string{"env", runAsTestee + "=" + wrong, os.Args[0]} }

func TestACorrectClientPasses(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"correct", "events are JSON"} {
		only := ""
		if how != "correct" {
			only = "^event|^exit"
		}
		report, err := check(t, how, only)
		require.NoError(t, err)
		require.Empty(t, report.Failed)
		require.Empty(t, report.Unsupported)
		require.Equal(t, len(Select(regexp.MustCompile(only))), report.Passed)
	}
}

// TestWrongClientsFail: each fails the cases that name what it does wrong, and passes one next to them.
func TestWrongClientsFail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ wrong, fails, passes, says string }{
		{"wrong hash", "partition-of-6", "partition-of-1", `{"key":"1","partition":`},
		{"no user buckets", "partition-with-user-buckets", "partition-of-other-posts", `"key":"42"`},
		{"ids are doubles", "event-ids-above-2^53", "event-actions", `"post_id":"9007199254740992"`},
		{"ids are doubles", "react-ids-above-2^53", "react-actions", "PUT /v1/posts/9007199254740992/likes/"},
		{"ids are doubles", "stream-ids-above-2^53", "stream", "post_ids=18446744073709552000"},
		{"ids are signed", "event-largest-ids", "event-actions", `"post_id":"9223372036854775807"`},
		{"ids are JSON numbers", "event-largest-ids", "event-actions", "is 9223372036854776000 in the value"},
		{"offsets are JSON numbers", "react-position", "react-400", `"offset":0`},
		{"quoted keys", "event-actions", "count", "is not a decimal post id"},
		{"a new time for a retry", "react-closed-read", "react-actions", "time_ms=1"},
		{"never retries", "react-429", "react-400", `{"problem":"rate-limited"}`},
		{"never retries", "react-503", "react-401", `{"problem":"not-running"}`},
		{"never retries", "count-closed-read", "count", `{"problem":"unreachable"}`},
		{"ignores Retry-After", "react-429", "react-closed-read", "before Retry-After"},
		{"ignores Retry-After", "stream-429", "stream", "before Retry-After"},
		{"retries a 400", "react-400", "react-401", "time_ms=<now>; PUT"},
		{"min_offset without the partition", "count-min-offset", "count", "min_offset=1018"},
		{"no Last-Event-ID", "stream-resumed", "stream", "GET /v1/stream post_ids=42; GET /v1/stream post_ids=42"},
		{"takes the id of half an event", "stream-cut-off", "stream-resumed", "last_event_id=5f0c1d2e.3:1004"},
		{"no CR LF", "stream-crlf", "stream", "did not answer"},
		{"any event", "stream-comments", "stream-split", `{"likes":["3",""]}`},
		{"only one line of data", "stream-multi-line-data", "stream-split", `"likes":["",`},
		{"exits with 1", "exit", "count", "exit status 1"},
		{"fails", "count", "exit", `"error":"out of order"`},
	} {
		t.Run(c.wrong+"/"+c.fails, func(t *testing.T) {
			t.Parallel()
			report, err := check(t, c.wrong, "^("+regexp.QuoteMeta(c.fails)+"|"+c.passes+")$")
			require.NoError(t, err)
			require.Equal(t, 1, report.Passed, "%+v", report.Failed)
			require.Len(t, report.Failed, 1)
			require.Equal(t, c.fails, report.Failed[0].ID)
			require.Contains(t, report.Failed[0].Got, c.says)
			require.NotEqual(t, report.Failed[0].Expected, report.Failed[0].Got)
		})
	}
}

func TestUnsupportedOperationsAreListed(t *testing.T) {
	t.Parallel()
	report, err := check(t, "has no event", "^event|^database|^count$")
	require.NoError(t, err)
	require.Equal(t, &Report{Passed: 2, Failed: []Failure{}, Unsupported: map[string]int{"event": 8}}, report)
}

// TestTesteesThatDoNotAnswer: the rest does not run after the third case.
func TestTesteesThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	for wrong, says := range map[string]string{
		"ends":      "the testee did not answer: exit status 7",
		"wrong id":  "its id is 2, that of the request 1",
		"long line": "did not answer: bufio.Scanner: token too long",
		"leaves":    "the testee did not answer: exit status 0",
		"no JSON":   `answer "hello": invalid character`,
	} {
		t.Run(wrong, func(t *testing.T) {
			t.Parallel()
			report, err := check(t, wrong, "")
			require.ErrorContains(t, err, "3 cases without an answer")
			require.ErrorContains(t, err, says)
			require.Len(t, report.Failed, maxSilent)
			require.Contains(t, report.Failed[0].Got, says)
		})
	}
	t.Run("never answers", func(t *testing.T) {
		t.Parallel()
		report, err := check(t, "never answers", "^(count|count-400)$")
		require.NoError(t, err)
		require.Len(t, report.Failed, 2)
		require.Contains(t, report.Failed[0].Got, "did not answer: 3s are over")
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	_, err := Run(ctx, Options{Command: command("never answers"), Cases: Select(all), Timeout: CaseTimeout})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), CaseTimeout)
}

func TestACommandThatDoesNotStart(t *testing.T) {
	_, err := Run(t.Context(), Options{Command: []string{"/nowhere/testee"}, Cases: Select(all)})
	require.ErrorContains(t, err, "starting the testee: fork/exec /nowhere/testee")
}

// TestReadmeNamesTheOperations: the table of the protocol has those of the cases.
func TestReadmeNamesTheOperations(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var ops []string
	for _, c := range Select(all) {
		for _, s := range c.Steps {
			ops = append(ops, s.Request["op"].(string))
		}
	}
	slices.Sort(ops)
	for _, op := range slices.Compact(ops) {
		require.True(t, strings.Contains(string(readme), "\n| `"+op+"` |"), op)
	}
}
