package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/httpserver/admin"
)

// adminServer runs an admin server on addr whose one check is what ready holds, and
// returns the port.
func adminServer(t *testing.T, addr string, ready *atomic.Pointer[error]) (port string) {
	t.Helper()
	opts := admin.DefaultOptions()
	opts.Addr = addr
	check := admin.Check{Name: "processor", Ready: func() error {
		if err := ready.Load(); err != nil {
			return *err
		}
		return nil
	}}
	server := admin.New(opts, admin.NewRegistry(), []admin.Check{check}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	select {
	case <-server.Listening():
	case <-time.After(10 * time.Second):
		t.Fatal("the admin server does not listen")
	}
	_, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	return port
}

func TestHealth(t *testing.T) {
	var ready atomic.Pointer[error]
	port := adminServer(t, "127.0.0.1:0", &ready)
	code, stdout, stderr := kudos(t, "", "health", "--admin-addr", "127.0.0.1:"+port)
	require.Equal(t, exitDone, code, stderr)
	require.Equal(t, "ready\n", stdout)

	trouble := errors.New("likes/2 parked: the basket is full (remedy: empty it)")
	ready.Store(&trouble)
	code, stdout, stderr = kudos(t, "", "health", "--set", "admin.addr=127.0.0.1:"+port)
	require.Equal(t, exitFailed, code)
	require.Empty(t, stdout)
	require.Equal(t, "kudos: not ready\nprocessor: likes/2 parked: the basket is full (remedy: empty it)\n", stderr)
}

// In the image the role listens on all addresses.
func TestHealthOfAServerOnAllAddresses(t *testing.T) {
	var ready atomic.Pointer[error]
	for _, host := range []string{"", "0.0.0.0"} {
		t.Setenv("KUDOS_ADMIN_ADDR", host+":"+adminServer(t, host+":0", &ready))
		code, _, stderr := kudos(t, "", "health")
		require.Equal(t, exitDone, code, "%q: %s", host, stderr)
	}
}

func TestHealthWithoutAnAnswer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	require.NoError(t, err)
	defer silent.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer other.Close()

	for _, c := range []struct {
		name, addr, timeout, says string
	}{
		{"silent", silent.Addr().String(), "200ms", "no answer from the admin server (admin.addr)"},
		{"gone", gone.Addr().String(), "20s", "connection refused"},
		{"somebody else", other.Listener.Addr().String(), "20s", `answers 200 OK, but not as kudos does: "hello"`},
		{"any port", "127.0.0.1:0", "20s", "any free port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			code, stdout, stderr := kudos(t, "", "health", "--admin-addr", c.addr, "--timeout", c.timeout)
			require.Equal(t, exitFailed, code)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.says)
			require.Less(t, time.Since(began), 10*time.Second)
		})
	}
	code, _, stderr := kudos(t, "", "health", "--timeout", "0s")
	require.Equal(t, exitUsage, code, stderr)
}
