package httpserver

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
)

const fewIdle = 8

const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

func requireAnswered(t *testing.T, conn net.Conn, what string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err, what)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusNotFound, resp.StatusCode, what)
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
			idle := &idleConns{bounded: bounded{limit: fewIdle}}
			s.HTTP.ConnState = idle.state
			stop := run(t, s)
			other := testkit.DialFrom(t, "127.0.0.2", s.Addr(), request)
			requireAnswered(t, other, "before the flood")
			var flood []net.Conn
			for range 5 * fewIdle {
				flood = append(flood, testkit.DialFrom(t, "127.0.0.1", s.Addr(), begin))
			}
			idle.requireOpen(t, fewIdle)
			third := testkit.DialFrom(t, "127.0.0.3", s.Addr(), request)
			requireAnswered(t, third, "on a new connection")
			_, err := io.WriteString(other, request)
			require.NoError(t, err)
			requireAnswered(t, other, "on the same connection, after the flood")
			for _, conn := range append(flood, other, third) {
				require.NoError(t, conn.Close())
			}
			idle.requireOpen(t, 0)
			require.NoError(t, stop())
		})
	}
}

func (i *idleConns) requireOpen(t *testing.T, n int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		known := int64(0)
		i.conns.Range(func(any, any) bool { known++; return true })
		i.mu.Lock()
		defer i.mu.Unlock()
		return known == n && i.mu.held == n
	}, patience, time.Millisecond, "%d connections must be open", n)
}
