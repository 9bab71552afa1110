package producer

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const accepted = `{"partition":3,"offset":1017}`

// loadOn is a load on a server that answers as told.
func loadOn(t *testing.T, lines int, answer http.HandlerFunc) *load {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	o := DefaultOptions()
	o.Addr = server.Listener.Addr().String()
	return &load{options: &o, likes: newLikes(1, 1000), lines: lines, connections: 32}
}

func TestFailuresAreToldApart(t *testing.T) {
	for name, c := range map[string]struct {
		lines   int
		status  int
		body    string
		step    Step
		failure string
	}{
		"a like":                {0, 202, accepted, Step{Accepted: 1}, ""},
		"refused":               {0, 429, `{"detail":"too many"}`, Step{Refused: 1}, "429 Too Many Requests: too many"},
		"not acknowledged":      {0, 503, `{"detail":"unknown"}`, Step{Failed: 1}, "503 Service Unavailable: unknown"},
		"a batch":               {3, 202, `{"accepted":3,"rejected":0,"failed":0,"lines":[]}`, Step{Accepted: 3}, ""},
		"a batch in part":       {3, 503, `{"accepted":2,"failed":1,"detail":"unknown"}`, Step{Accepted: 2, Failed: 1}, "503 Service Unavailable: unknown"},
		"a batch with bad line": {3, 202, `{"accepted":2,"rejected":1,"failed":0}`, Step{Accepted: 2, Failed: 1}, "2 of 3 lines were accepted, 1 rejected, 0 failed"},
		"another server":        {3, 202, `<html>`, Step{Failed: 1}, "an answer with status 202 is not the producer's"},
	} {
		t.Run(name, func(t *testing.T) {
			l := loadOn(t, c.lines, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			got, err := l.hold(t.Context(), 1, time.Second)
			require.NoError(t, err)
			require.Equal(t, 1, got.Requests)
			require.Contains(t, got.FirstFailure, c.failure)
			require.Equal(t, c.failure == "", got.FirstFailure == "")
			require.Equal(t, c.step, Step{Accepted: got.Accepted, Refused: got.Refused, Failed: got.Failed})
		})
	}
}

// Requests that are due while the server stalls count from when they were due, though
// they could be sent only later.
func TestTimesRunFromThePlan(t *testing.T) {
	const stall = 400 * time.Millisecond
	var first sync.Once
	l := loadOn(t, 0, func(w http.ResponseWriter, r *http.Request) {
		first.Do(func() { <-time.After(stall) })
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, accepted)
	})
	l.connections = 1
	l.options.LatencyLimit = time.Minute // none is given up, however slow the machine
	got, err := l.hold(t.Context(), 100, time.Second)
	require.NoError(t, err)
	require.EqualValues(t, 100, got.Accepted)
	// Request 1 is due after 10 ms and answered after 400 at the earliest, and so on.
	require.GreaterOrEqual(t, got.P99Ms, 389.0)
	require.GreaterOrEqual(t, got.MaxMs, 399.0)
}

// A server that does not answer holds the measurement up for a bounded time only.
func TestAHopelessRateIsGivenUp(t *testing.T) {
	over := make(chan struct{})
	l := loadOn(t, 0, func(http.ResponseWriter, *http.Request) { <-over })
	t.Cleanup(func() { close(over) }) // before the server closes, which waits
	l.connections = 2
	l.options.LatencyLimit = 10 * time.Millisecond
	l.options.RequestTimeout = 100 * time.Millisecond
	got, err := l.hold(t.Context(), 1000, time.Second)
	require.NoError(t, err)
	require.Positive(t, got.Unsent)
	require.Positive(t, got.Failed)
	require.Equal(t, 1000, got.Requests+got.Unsent)
	require.Zero(t, got.Accepted)
}

func TestNobodyListens(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	o := DefaultOptions()
	o.Addr = ln.Addr().String()
	_, err = Measure(t.Context(), o)
	require.ErrorContains(t, err, "measuring the producer at "+o.Addr+", single endpoint: connecting to the producer: ")
}

func TestValidate(t *testing.T) {
	_, err := Measure(t.Context(), Options{Addr: "nowhere", BatchLines: 10_001})
	for _, part := range []string{"not host:port", "connections 0", "posts and the first user", "batch lines 10001", "start rate 0", "durations"} {
		require.ErrorContains(t, err, part)
	}
	o := DefaultOptions()
	o.Addr = "127.0.0.1:8080"
	require.NoError(t, o.Validate())
}
