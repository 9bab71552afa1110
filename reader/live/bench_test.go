package live

import (
	"bufio"
	"context"
	"fmt"
	"iter"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"kudos/reader/view"
	"kudos/reader/wire"
)

// BenchmarkChanges measures one callback with 50,000 posts, of which 10 are shown.
func BenchmarkChanges(b *testing.B) {
	h := newHub(b, newLikes(1), newRankings(), prometheus.NewRegistry(), nil)
	shown := make([]uint64, 10)
	for i := range shown {
		shown[i] = uint64(i)*4_999 + 1
	}
	s := newStream(b.Context())
	require.NoError(b, h.subscribe(s, posts(shown...)))
	defer s.leave()
	changes := make([]view.Change, 50_000)
	for i := range changes {
		changes[i] = likes(uint64(i+1), 1)
	}
	b.ReportAllocs()
	offset := int64(0)
	for b.Loop() {
		offset++
		h.likesChanged(wire.Position{Offset: offset}, changes)
	}
}

// BenchmarkTurn measures one change that 2,000 streams show: until it is published, and until the last of them has it.
func BenchmarkTurn(b *testing.B) {
	const streams = 2_000
	for _, until := range []string{"published", "sent"} {
		b.Run(until, func(b *testing.B) {
			h := newHub(b, newLikes(1), newRankings(), prometheus.NewRegistry(), nil)
			sent := make(chan struct{}, streams)
			var ends []func()
			for range streams {
				s := newStream(b.Context())
				require.NoError(b, h.subscribe(s, posts(7)))
				s.news(func([]byte, *message) bool { return true })
				if until == "sent" {
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						_ = s.run(countingConn{sent}, h.options, func(int) {})
					}()
					ends = append(ends, func() { s.end(nil); <-ended })
				}
				ends = append(ends, s.leave)
			}
			b.ReportAllocs()
			offset := int64(0)
			for b.Loop() {
				offset++
				h.likesChanged(wire.Position{Offset: offset}, []view.Change{likes(7, offset)})
				h.posts.publish(h.log)
				for range streams {
					if until == "sent" {
						<-sent
					}
				}
			}
			for _, end := range ends {
				end()
			}
		})
	}
}

type countingConn struct{ sent chan<- struct{} }

func (c countingConn) send(news iter.Seq2[[]byte, *message]) (n int, err error) {
	for range news {
		c.sent <- struct{}{}
	}
	return 0, nil
}
func (countingConn) heartbeat(context.Context) error { return nil }
func (countingConn) close(error)                     {}

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
