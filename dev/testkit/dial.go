package testkit

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// DialFrom connects to a server from a loopback address, which stands for a client, and sends the beginning of a
// request. What it does later with the connection has a deadline, too.
func DialFrom(t testing.TB, from, addr, begin string) *net.TCPConn {
	t.Helper()
	d := net.Dialer{Timeout: Patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(Patience)))
	_, err = io.WriteString(conn, begin)
	require.NoError(t, err)
	return conn.(*net.TCPConn)
}
