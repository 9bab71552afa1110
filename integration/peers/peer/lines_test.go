package peer

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pass advances the bubble's clock, which jumps there once every goroutine waits for something.
func pass(d time.Duration) { <-time.After(d) }

func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := NewLines(&out)
		begin := time.Now().UnixNano()
		l.FirstPoll()
		l.FirstPoll()
		l.Read(10)
		require.NoError(t, l.Committed(3))
		require.NoError(t, l.Committed(5), "too soon after the previous line")
		pass(committedEvery)
		require.NoError(t, l.Committed(6))
		require.NoError(t, l.Committed(10), "all events read are committed: printed at once")
		l.Read(5)
		require.NoError(t, l.Committed(12), "too soon again")
		require.NoError(t, l.Committed(15))
		require.NoError(t, l.State(99, 7))

		var got []map[string]any
		for text := range strings.Lines(out.String()) {
			var line map[string]any
			require.NoError(t, json.Unmarshal([]byte(text), &line))
			got = append(got, line)
		}
		at, later := float64(begin), float64(begin+committedEvery.Nanoseconds())
		require.Equal(t, []map[string]any{
			{"event": "first_poll", "time_unix_ns": at},
			{"event": "committed", "events": 3.0, "time_unix_ns": at},
			{"event": "committed", "events": 6.0, "time_unix_ns": later},
			{"event": "committed", "events": 10.0, "time_unix_ns": later},
			{"event": "committed", "events": 15.0, "time_unix_ns": later},
			{"event": "state", "bytes": 99.0, "pairs": 7.0},
		}, got)
	})
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestLostLinesEndThePeer(t *testing.T) {
	l := NewLines(fullDisk{})
	l.FirstPoll()
	require.ErrorContains(t, l.Committed(1), "print a line: full")
}

func TestParse(t *testing.T) {
	o, err := Parse([]string{"--brokers", "a:1,b:2", "--mysql-dsn", "d", "--state-dir", "s", "--redis", "r:3"})
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "b:2"}, o.Brokers)
	require.Equal(t, "d s r:3", o.MySQLDSN+" "+o.StateDir+" "+o.Redis)

	for _, bad := range [][]string{{}, {"--brokers", "a"}, {"--what"},
		{"--brokers", "a", "--mysql-dsn", "d", "--state-dir", "s", "more"}} {
		_, err := Parse(bad)
		require.Error(t, err, bad)
	}
}
