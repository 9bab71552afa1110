package browser_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
	"kudos/integration/tier"
)

const (
	installWithin = 3 * time.Minute
	testsWithin   = 10 * time.Minute
)

// TestDashboard runs dashboard.test.mjs against a system of its own.
func TestDashboard(t *testing.T) {
	tier.Test(t)
	s := newSystem(t)
	control := httptest.NewServer(s.control())
	t.Cleanup(control.Close)
	install(t)
	node(t, []string{"KUDOS_READER=" + s.readerURL, "KUDOS_PRODUCER=" + s.producerURL, "KUDOS_CONTROL=" + control.URL},
		"--test", "--test-reporter=spec", "dashboard.test.mjs")
}

// TestLockFileNamesNoRegistry: whoever installs uses the registry that they have.
func TestLockFileNamesNoRegistry(t *testing.T) {
	lock, err := os.ReadFile("package-lock.json")
	require.NoError(t, err)
	require.NotRegexp(t, `"resolved"|https?://`, string(lock), "mend: npm config set omit-lockfile-registry-resolved true, and make it anew")
	require.Contains(t, string(lock), `"integrity"`)
}

// control is what the script in the browser cannot do by itself: the reader's crash
// and its return.
func (s *system) control() http.Handler {
	mux := http.NewServeMux()
	do := func(work func(context.Context) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if err := work(r.Context()); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}
	}
	mux.HandleFunc("POST /reader/kill", do(func(context.Context) error { return s.reader.Kill() }))
	mux.HandleFunc("POST /reader/start", do(func(ctx context.Context) error { return s.reader.Start(ctx) }))
	return mux
}

// install fetches what package.json names: the browser's driver and axe.
func install(t testing.TB) {
	t.Helper()
	run(t, installWithin, nil, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
}

// node runs a script of this folder with addresses in its environment.
func node(t testing.TB, environment []string, args ...string) {
	t.Helper()
	chromium, err := stack.Chromium()
	require.NoError(t, err)
	run(t, testsWithin, append(environment, "KUDOS_CHROMIUM="+chromium), "node", args...)
}

func run(t testing.TB, within time.Duration, environment []string, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it ends its browser
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	require.NoError(t, cmd.Run(), "%s (within %v)", cmd, within)
}
