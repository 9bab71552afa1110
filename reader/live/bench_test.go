package live

import (
	"bufio"
	"fmt"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkIdleStreams reports the memory of an idle stream on a real server, including the client's bare connection.
func BenchmarkIdleStreams(b *testing.B) {
	const streams = 2_000
	for kind, headers := range map[string]string{
		kindSSE: "", kindWebSocket: strings.ReplaceAll(handshake, "\n", "\r\n"),
	} {
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(idleBytes(b, streams, headers), "B/stream")
			}
		})
	}
}

func idleBytes(b *testing.B, streams int, headers string) float64 {
	r := start(b, 4, nil)
	server := httptest.NewServer(r.Hub)
	defer server.Close()
	before := memory()
	conns := make([]net.Conn, streams)
	for i := range conns {
		var err error
		conns[i], err = net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(b, err)
		_, err = fmt.Fprintf(conns[i], "GET /v1/stream?post_ids=%d HTTP/1.1\r\nHost: x\r\n%s\r\n", i+1, headers)
		require.NoError(b, err)
		lines := bufio.NewReaderSize(conns[i], 512)
		for line := ""; len(line) < 100; { // the one with the data
			line, err = lines.ReadString('}')
			require.NoError(b, err)
		}
	}
	require.Equal(b, streams, r.open())
	bytes := float64(memory()-before) / float64(streams)
	for _, c := range conns {
		require.NoError(b, c.Close())
	}
	r.stop()
	return bytes
}

// memory returns what the heap and the stacks hold.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
