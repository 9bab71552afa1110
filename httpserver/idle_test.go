package httpserver

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
)

const fewIdle = 8

// dialFrom connects from a loopback address, which stands for a client.
func dialFrom(t *testing.T, from, addr string, begin string) net.Conn {
	t.Helper()
	d := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, begin)
	require.NoError(t, err)
	return conn
}

const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

func requireAnswered(t *testing.T, conn net.Conn, what string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err, what)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusNotFound, resp.StatusCode, what)
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// Connections of one client that send nothing, or half a request's headers, close each other, and no other's.
func TestIdleConnectionsEvictEachOther(t *testing.T) {
	for name, begin := range map[string]string{
		"silent": "", "half a header": request[:20], "keep-alive": request,
		"HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			s.HTTP.Handler = http.NotFoundHandler()
			idle := newIdleConns(fewIdle)
			s.HTTP.ConnState = idle.state
			stop := run(t, s)
			other := dialFrom(t, "127.0.0.2", s.Addr(), request)
			requireAnswered(t, other, "before the flood")
			var flood []net.Conn
			for range 5 * fewIdle {
				flood = append(flood, dialFrom(t, "127.0.0.1", s.Addr(), begin))
			}
			idle.requireOpen(t, fewIdle, fewIdle)
			requireAnswered(t, dialFrom(t, "127.0.0.3", s.Addr(), request), "on a new connection")
			_, err := io.WriteString(other, request)
			require.NoError(t, err)
			requireAnswered(t, other, "on the same connection, after the flood")
			for _, conn := range append(flood, other) {
				require.NoError(t, conn.Close())
			}
			require.NoError(t, stop())
		})
	}
}

// A connection with a request in flight is not idle. One that is closed is forgotten.
func TestBusyConnectionsAreKept(t *testing.T) {
	s := newServer()
	begun, end := make(chan struct{}, 3*fewIdle), make(chan struct{})
	s.HTTP.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-end
		w.WriteHeader(http.StatusNotFound)
	})
	idle := newIdleConns(fewIdle)
	s.HTTP.ConnState = idle.state
	stop := run(t, s)
	var busy []net.Conn
	for range 3 * fewIdle {
		busy = append(busy, dialFrom(t, "127.0.0.1", s.Addr(), request))
		<-begun
	}
	close(end)
	for _, conn := range busy {
		requireAnswered(t, conn, "a busy connection")
		require.NoError(t, conn.Close())
	}
	require.NoError(t, stop())
	idle.requireOpen(t, 0, 0)
	require.Empty(t, idle.mu.of)
}

// requireOpen waits until so many connections are open, and so many of them wait.
func (i *idleConns) requireOpen(t *testing.T, open, waiting int) {
	t.Helper()
	require.Eventually(t, func() bool {
		i.mu.Lock()
		defer i.mu.Unlock()
		return len(i.mu.conns) == open && i.mu.waiting.Len() == waiting
	}, patience, time.Millisecond, "%d open connections, %d waiting", open, waiting)
}

// If many clients have few connections each, the one that waits longest is closed, also with TLS.
func TestLongestIdleConnectionIsClosed(t *testing.T) {
	s := newTLSServer(t, slog.New(slog.DiscardHandler))
	issued := stack.NewAuthority(t).IssueForTest(t, "one")
	s.certificate.install(t, issued.Cert, issued.Key)
	s.HTTP.Handler = http.NotFoundHandler()
	idle := newIdleConns(2)
	s.HTTP.ConnState = idle.state
	stop := run(t, s)
	var conns []net.Conn
	for n, from := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		conn := tls.Client(dialFrom(t, from, s.Addr(), ""), &tls.Config{InsecureSkipVerify: true})
		_, err := io.WriteString(conn, request)
		require.NoError(t, err)
		requireAnswered(t, conn, from)
		conns = append(conns, conn)
		idle.requireOpen(t, min(n+1, 2), min(n+1, 2))
	}
	_, err := conns[0].Read(make([]byte, 1))
	require.Error(t, err)
	require.False(t, isTimeout(err), "the connection must be closed")
	for _, conn := range conns[1:] {
		_, err := io.WriteString(conn, request)
		require.NoError(t, err)
		requireAnswered(t, conn, "a connection that waits less long")
		require.NoError(t, conn.Close())
	}
	require.NoError(t, stop())
}
