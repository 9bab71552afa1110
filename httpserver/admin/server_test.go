package admin

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/integration/testrun"
)

// start runs a server on a free port until the test ends, and returns its URL.
func start(t *testing.T, opts Options, reg *prometheus.Registry, checks ...Check) string {
	t.Helper()
	opts.Addr = "127.0.0.1:0"
	s := New(opts, reg, checks, slog.New(slog.DiscardHandler))
	testrun.Start(t, "the admin server", 10*time.Second, s.Run)
	require.Eventually(t, func() bool { return s.Addr() != "" }, 10*time.Second, time.Millisecond, "it must listen")
	return "http://" + s.Addr()
}

func get(t *testing.T, url string) (status int, body []byte) {
	t.Helper()
	a := apikit.MustSend(t, nil, http.MethodGet, url, "")
	return a.Status, []byte(a.Body)
}

func TestReadyNamesEachCheckAndWhyItFails(t *testing.T) {
	var failing error
	url := start(t, DefaultOptions(), NewRegistry(),
		Check{Name: "producer", Ready: func() error { return nil }},
		Check{Name: "processor", Ready: func() error { return failing }})

	status, body := get(t, url+"/readyz")
	require.Equal(t, http.StatusOK, status, string(body))

	failing = errors.New(`partition 3 is parked: run "kudos topics check"`)
	status, body = get(t, url+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	var answer Readiness
	require.NoError(t, json.Unmarshal(body, &answer))
	require.Equal(t, Readiness{Checks: []CheckResult{
		{Name: "producer", Ready: true}, {Name: "processor", Error: failing.Error()},
	}}, answer)

	status, _ = get(t, url+"/livez")
	require.Equal(t, http.StatusOK, status, "a process that is not ready is still alive")
}

func TestVerboseShowsTheDetail(t *testing.T) {
	url := start(t, DefaultOptions(), NewRegistry(),
		Check{Name: "plain", Ready: func() error { return nil }},
		Check{Name: "processor", Ready: func() error { return nil }, Detail: func() any { return []int{1, 2} }})
	_, body := get(t, url+"/readyz")
	require.NotContains(t, string(body), "detail")
	status, body := get(t, url+"/readyz?verbose")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"ready": true, "checks": [
		{"name": "plain", "ready": true}, {"name": "processor", "ready": true, "detail": [1, 2]}]}`, string(body))
}

// Connections that send nothing, or a part of a request, do not keep probes out.
func TestProbesAreAnsweredBesideIdleConnections(t *testing.T) {
	url := start(t, DefaultOptions(), NewRegistry(), Check{Name: "reader", Ready: func() error { return nil }})
	for i := range 2 * maxConnections {
		conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", url[len("http://"):])
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "GET /readyz HTTP/1.1\r\n"[:i%2*22])
		require.NoError(t, err)
	}
	ctx := testkit.Within(t, 4*time.Second) // less than such connections may take
	require.NoError(t, Ask(ctx, url[len("http://"):]))
}

func TestMetricsAreThoseOfTheRegistry(t *testing.T) {
	reg := NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "kudos_test_total", Help: "Test counter."})
	reg.MustRegister(counter)
	counter.Add(7)
	url := start(t, DefaultOptions(), reg)

	status, body := get(t, url+"/metrics")
	require.Equal(t, http.StatusOK, status)
	for _, want := range []string{"kudos_test_total 7", "go_goroutines", "process_cpu_seconds_total", "go_build_info"} {
		require.Contains(t, string(body), want)
	}
}

func TestProfilesAreServedIfWanted(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		opts := DefaultOptions()
		opts.Profiles = wanted
		url := start(t, opts, NewRegistry())
		profiles := http.StatusNotFound
		if wanted {
			profiles = http.StatusOK
		}
		for path, want := range map[string]int{
			"/":                            http.StatusOK,
			"/debug/pprof/":                profiles,
			"/debug/pprof/goroutine?debug": profiles,
			"/v1/posts":                    http.StatusNotFound,
		} {
			status, _ := get(t, url+path)
			require.Equal(t, want, status, "%s, profiles: %t", path, wanted)
		}
	}
}

func TestRunNamesAnAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	opts := DefaultOptions()
	opts.Addr = l.Addr().String()
	err = New(opts, NewRegistry(), nil, slog.New(slog.DiscardHandler)).Run(t.Context())
	require.ErrorContains(t, err, "admin.addr")
	require.ErrorContains(t, err, opts.Addr)
}

func TestOptionsValidate(t *testing.T) {
	require.NoError(t, DefaultOptions().Validate())
	err := Options{Addr: "nowhere"}.Validate()
	require.ErrorContains(t, err, "admin.addr")
	require.ErrorContains(t, err, "admin.shutdown_timeout")
}
