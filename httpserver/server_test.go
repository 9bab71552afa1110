package httpserver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait of a test.
const patience = 20 * time.Second

func newServer() *Server {
	return NewServer(Config{
		Name: "reader", Key: "reader.http_addr", Addr: "127.0.0.1:0", HTTP: &http.Server{}, ShutdownTimeout: patience,
	}, slog.New(slog.DiscardHandler))
}

// run serves until stop is called, which returns the error of Serve.
func run(t *testing.T, s *Server) (stop func() error) {
	t.Helper()
	ln, err := s.Listen(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	ended := testkit.Later(func() error { return s.Serve(ctx, ln) })
	<-s.Listening()
	require.Equal(t, ln.Addr().String(), s.Addr())
	return func() error { cancel(); return <-ended }
}

// A fatal failure ends everything, and a listener that is not served is closed.
func TestServerFails(t *testing.T) {
	broken := errors.New("broken")
	fail := func(context.Context) error { return broken }
	listen := func(s *Server) net.Listener {
		ln, err := s.Listen(t.Context())
		require.NoError(t, err)
		return ln
	}
	s := newServer()
	require.NoError(t, s.Ready())
	s.config.Run = []func(context.Context) error{fail}
	require.ErrorIs(t, s.Serve(t.Context(), listen(s)), broken)
	require.EqualError(t, s.Ready(), "reader: shutting down")
	require.EqualError(t, s.Serve(t.Context(), listen(s)), "reader: Run was called twice")

	s = newServer()
	s.config.Open = func() error { return broken }
	ln := listen(s)
	require.ErrorIs(t, s.Serve(t.Context(), ln), broken)
	require.Empty(t, s.Addr())
	require.ErrorIs(t, ln.Close(), net.ErrClosed)

	s = newServer()
	ln = listen(s)
	taken, addr := newServer(), ln.Addr().String()
	taken.config.Addr = addr
	_, err := taken.Listen(t.Context())
	require.ErrorContains(t, err, "reader: listening on "+addr+" (set reader.http_addr to a free host:port): ")
	require.NoError(t, ln.Close())
	require.ErrorContains(t, s.Serve(t.Context(), ln), "reader: serving on "+addr+": ")
}

// Services can send requests over HTTP/2 without TLS.
func TestHTTP2WithoutTLS(t *testing.T) {
	s := newServer()
	proto := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }
	s.HTTP.Handler = http.HandlerFunc(proto)
	stop := run(t, s)
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	for want, client := range map[string]*http.Client{"HTTP/2.0": {Transport: transport}, "HTTP/1.1": {}} {
		require.Equal(t, want, apikit.MustSend(t, client, http.MethodGet, "http://"+s.Addr(), "").Body)
		client.CloseIdleConnections()
	}
	require.NoError(t, stop())
}

// What a client does not read is kept by the server, not by the system in megabytes of buffers.
func TestUnreadResponsesAreBounded(t *testing.T) {
	s, sent := newServer(), make(chan int, 1)
	s.HTTP.WriteTimeout = 300 * time.Millisecond
	s.HTTP.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n, piece := 0, make([]byte, 64<<10)
		for _, err := w.Write(piece); err == nil; _, err = w.Write(piece) {
			n += len(piece)
		}
		sent <- n
	})
	stop := run(t, s)
	conn := testkit.DialFrom(t, "127.0.0.1", s.Addr(), request)
	require.Less(t, <-sent, 1<<20)
	require.NoError(t, conn.Close())
	require.NoError(t, stop())
}

// A web page whose name points to 127.0.0.1 must not reach a server of kudos dev (DNS rebinding).
func TestOtherHostsAreRejected(t *testing.T) {
	s := NewServer(Config{
		Name: "reader", Key: "reader.http_addr", Addr: "Dev.example:0", ShutdownTimeout: patience,
		Listener: func(l net.Listener) net.Listener { t.Error("bypasses the check"); return l },
		HTTP: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		})},
	}, slog.New(slog.DiscardHandler))
	s.RejectOtherHosts()
	s.config.Addr = "127.0.0.1:0"
	stop := run(t, s)
	for host, want := range map[string]int{
		"": 204, "localhost": 204, "LocalHost:8081": 204, "127.0.0.1:8081": 204, "[::1]:8081": 204, "[::1]": 204,
		"10.0.0.7": 204, "dev.example:8081": 204,
		"evil.example": 421, "evil.example:8081": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr(), nil)
		require.NoError(t, err)
		req.Host = host // "": that of the URL
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		a := apikit.Read(t, resp)
		require.Equal(t, want, a.Status, host)
		require.Equal(t, []string{"nosniff"}, a.Header["X-Content-Type-Options"])
		require.Equal(t, want == 421, strings.Contains(a.Body, "use localhost"), host)
	}
	require.NoError(t, stop())
}
