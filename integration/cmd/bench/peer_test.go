package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/bench"
	"kudos/bench/child"
	"kudos/dev/testkit"
)

func startScript(t *testing.T, script string) bench.Running {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	require.NoError(t, os.WriteFile(path, []byte(script), 0o644))
	p := &peer{name: "script", program: child.Command{Path: "/bin/sh", Args: []string{path}}}
	running, err := p.Start(&bench.Servers{DSN: "dsn", Log: slog.New(slog.DiscardHandler)}, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(running.Kill)
	return running
}

// onTerm makes a script print a line and exit on SIGTERM; untilTerm makes it wait for that.
const (
	onTerm    = "trap 'echo \"{\\\"event\\\":\\\"state\\\",\\\"bytes\\\":240,\\\"pairs\\\":10}\"; exit 0' TERM\n"
	untilTerm = "\nwhile :; do sleep 0.05; done\n"
)

func TestPeerReportsInLines(t *testing.T) {
	r := startScript(t, onTerm+`
echo "a log line of $1 $2 $3 $4" >&2
echo '{"event":"first_poll","time_unix_ns":1000000000}'
echo '{"event":"committed","events":3,"time_unix_ns":2000000000}'
echo '{"event":"committed","events":5,"time_unix_ns":3000000000}'
echo '{"event":"committed","events":5,"time_unix_ns":4000000000}'`+untilTerm)
	first, err := r.FirstPoll(testkit.Context(t))
	require.NoError(t, err)
	require.Equal(t, time.Unix(1, 0), first)
	last, err := r.Counted(testkit.Context(t), 5)
	require.NoError(t, err)
	require.Equal(t, time.Unix(3, 0), last, "the first line with this count")
	state, err := r.Stop()
	require.NoError(t, err)
	require.Equal(t, bench.State{Bytes: 240, Pairs: 10}, state)
	require.Contains(t, r.(*peerProcess).Tail(), "a log line of --brokers")
}

func TestPeerThatCountsTooMuch(t *testing.T) {
	r := startScript(t, onTerm+`echo '{"event":"committed","events":6,"time_unix_ns":1}'`+untilTerm)
	_, err := r.Counted(testkit.Context(t), 5)
	require.ErrorContains(t, err, "script reported 6 counted events, but there are only 5")
}

func TestPeerThatBreaksTheContract(t *testing.T) {
	for name, line := range map[string]string{
		"a log line":      `started`,
		"unknown event":   `{"event":"ready"}`,
		"count decreases": `{"event":"committed","events":1,"time_unix_ns":1}`,
		"after the state": `{"event":"state","bytes":1,"pairs":1}
{"event":"committed","events":5,"time_unix_ns":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			r := startScript(t, onTerm+`echo '{"event":"committed","events":2,"time_unix_ns":1}'; echo '`+line+`'`+
				untilTerm)
			_, err := r.Counted(testkit.Context(t), 5)
			require.ErrorContains(t, err, "script printed the line")
			_, err = r.Stop()
			require.ErrorContains(t, err, "script printed the line")
		})
	}
}

func TestPeerWithoutAState(t *testing.T) {
	r := startScript(t, "trap 'exit 0' TERM\n"+`echo '{"event":"first_poll","time_unix_ns":1}'`+untilTerm)
	_, err := r.FirstPoll(testkit.Context(t))
	require.NoError(t, err)
	_, err = r.Stop()
	require.ErrorContains(t, err, "exited without reporting its state")
}
