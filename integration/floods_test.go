package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
	"kudos/integration/tier"
)

// flood is what one client does to harm the others: so many connections that send this and wait, or streams of HTTP/2.
type flood struct {
	name, to string
	conns    int
	sends    string // of HTTP/2: the path
	http2    bool
}

const half = "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"

// floods are beyond the default limits of the producer and the reader.
func floods(likesEnd int64) []flood {
	const version = " HTTP/1.1\r\nHost: x\r\n"
	const single, many, count = "/v1/posts/1/likes", "/v1/likes:get", "GET /v1/posts/1/likes"
	at := func(offset int64) string { return fmt.Sprintf("%s?min_offset=%d%s\r\n", count, offset, version) }
	return []flood{
		{name: "producer-idle", to: "producer", conns: 11_000},
		{name: "producer-headers", to: "producer", conns: 11_000, sends: "PUT /v1/posts/1/likes/1 HTT"},
		{name: "producer-bodies", to: "producer", conns: 2100, sends: "POST " + single + version + half},
		{name: "producer-http2", to: "producer", conns: 2100, sends: single, http2: true},
		{name: "producer-batches", to: "producer", conns: 100, sends: "POST /v1/likes:batch" + version +
			"Content-Type: application/x-ndjson\r\nContent-Length: 4000000\r\n\r\n" + strings.Repeat("\n", 2_000_000)},
		{name: "producer-endless", to: "producer", conns: 2100, sends: "PUT " + single + "/1" + version +
			"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"},
		{name: "reader-idle", to: "reader", conns: 11_000},
		{name: "reader-keep-alive", to: "reader", conns: 11_000, sends: count + version + "\r\n"},
		{name: "reader-headers", to: "reader", conns: 11_000, sends: count + " HTT"},
		{name: "reader-bodies", to: "reader", conns: 2100, sends: "POST " + many + version + half},
		{name: "reader-http2", to: "reader", conns: 2100, sends: many, http2: true},
		{name: "reader-waiting", to: "reader", conns: 2100, sends: at(likesEnd - 1)},
		{name: "reader-beyond-end", to: "reader", conns: 2100, sends: at(likesEnd + 1_000_000)},
		{name: "reader-streams", to: "reader", conns: 11_000, sends: "GET /v1/stream?post_ids=1" + version + "\r\n"},
		{name: "reader-unread", to: "reader", conns: 200, sends: strings.Repeat(
			"GET /v1/likes?post_ids=1"+strings.Repeat(",1", 999)+version+"\r\n", 100)},
	}
}

// flooded is a producer and a reader, whose counts stay as they are, and a client that uses both.
type flooded struct {
	t        testing.TB
	base     map[string]string // URL by role
	roles    []*process
	likesEnd int64 // of post 1's partition; the reader never gets there
}

func newFlooded(t testing.TB) *flooded {
	s := newRealSystem(t)
	s.countEach(1000)
	r, addr := s.reader("reader"), stack.ReserveForTest(t)
	p := s.process("producer", t.TempDir(), s.on("producer", "--set", "producer.http_addr="+addr)...)
	startAll(p, r.process)
	f := &flooded{t: t, base: map[string]string{"producer": "http://" + addr, "reader": r.base},
		roles: []*process{p, r.process}}
	var at struct{ Offset int64 }
	body, err := f.send(operation{"producer", http.MethodPut, "/v1/posts/1/likes/1", "", 202})
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(body, &at))
	f.likesEnd = at.Offset + 1
	return f
}

type operation struct {
	to, method, path, body string
	want                   int
}

// operations are those of the normal client; the first of each role is measured.
var operations = []operation{
	{"producer", http.MethodPut, "/v1/posts/2/likes/1", "", 202},
	{"reader", http.MethodGet, "/v1/posts/2/likes", "", 200},
	{"reader", http.MethodGet, "/v1/likes?post_ids=1,2,3&viewer=1", "", 200},
	{"producer", http.MethodPost, "/v1/likes:batch", `{"post_id":2,"user_id":1,"action":"LIKE"}`, 202},
	{"reader", http.MethodPost, "/v1/likes:get", `{"post_ids":[1,2,3]}`, 200},
	{"reader", http.MethodGet, "/v1/stream?post_ids=1", "", 200},
}

// send returns the beginning of the response.
func (f *flooded) send(o operation) ([]byte, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, o.method, f.base[o.to]+o.path, strings.NewReader(o.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if o.to == "producer" {
		req.Header.Set("Content-Type", "application/x-ndjson")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	begin := make([]byte, 1<<10)
	n, err := resp.Body.Read(begin)
	if resp.StatusCode != o.want {
		return nil, fmt.Errorf("%s %s: %s %s", o.method, o.path, resp.Status, begin[:n])
	}
	if err == nil && !strings.HasPrefix(o.path, "/v1/stream") { // so that its connection is used again
		_, err = io.Copy(io.Discard, resp.Body)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return begin[:n], err
}

// inFlight bounds the concurrent requests of an operation of the normal client. If the machine stalls, later requests
// wait, and their latency includes that. During a flood, the client's own share of a producer's 32 batches is 8.
const inFlight = 6

// use is the normal client: 50 requests of each operation per second. It returns the p99 by role, and what was refused.
func (f *flooded) use(seconds int) (p99 map[string]time.Duration, failed []error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	took, slots := map[string][]time.Duration{}, make([]chan struct{}, len(operations))
	for i := range slots {
		slots[i] = make(chan struct{}, inFlight)
	}
	begin := time.Now()
	for n := range 50 * seconds {
		pause(f.t, time.Until(begin.Add(time.Duration(n)*time.Second/50)))
		for i, o := range operations {
			all.Go(func() {
				due := time.Now()
				slots[i] <- struct{}{}
				_, err := f.send(o)
				<-slots[i]
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed = append(failed, err)
				} else if i < 2 {
					took[o.to] = append(took[o.to], time.Since(due))
				}
			})
		}
	}
	all.Wait()
	p99 = map[string]time.Duration{}
	for role, list := range took {
		slices.Sort(list)
		p99[role] = list[len(list)*99/100]
	}
	return p99, failed
}

// begin floods from a loopback address, until stop is called.
func (f *flooded) begin(x flood, from string) (stop func()) {
	addr, ctx := strings.TrimPrefix(f.base[x.to], "http://"), context.WithoutCancel(f.t.Context())
	ctx, cancel := context.WithCancel(ctx)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 20 * time.Second}
	var conns []net.Conn
	var sending sync.WaitGroup
	transport := &http.Transport{Protocols: &http.Protocols{}, DialContext: d.DialContext}
	transport.Protocols.SetUnencryptedHTTP2(true)
	for range x.conns {
		if x.http2 {
			sending.Go(func() {
				body, _ := io.Pipe() // nothing follows
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+x.sends, body)
				require.NoError(f.t, err)
				req.Header.Set("Content-Type", "application/json")
				if resp, err := transport.RoundTrip(req); err == nil {
					_ = resp.Body.Close()
				}
			})
			continue
		}
		conn, err := d.DialContext(ctx, "tcp", addr)
		require.NoError(f.t, err)
		require.NoError(f.t, conn.(*net.TCPConn).SetLinger(0)) // thousands would keep their ports
		conns = append(conns, conn)
		sending.Go(func() { _, _ = io.WriteString(conn, x.sends) }) // the server may close it
	}
	pause(f.t, time.Second)
	return func() {
		cancel()
		for _, conn := range conns {
			_ = conn.Close()
		}
		sending.Wait()
		transport.CloseIdleConnections()
	}
}

// each runs a function during each flood, from another address each, so that there are enough ports.
func (f *flooded) each(run func(x flood)) {
	for i, x := range floods(f.likesEnd) {
		stop := f.begin(x, fmt.Sprintf("127.0.1.%d", i+1))
		run(x)
		for _, p := range f.roles {
			well, said := p.said("readyz")
			require.True(f.t, well, "%s: %s must be ready: %s", x.name, p, said)
		}
		stop()
	}
}

// TestFloods checks that whatever one client does, nothing of another one is refused, and both roles are ready.
func TestFloods(t *testing.T) {
	tier.Verify(t)
	f := newFlooded(t)
	f.each(func(x flood) {
		_, failed := f.use(2)
		require.Empty(t, failed, x.name)
	})
}

// BenchmarkFloods measures a client during each flood: the p99 of a like and of a read, and that without a flood, for
// KUDOS_TEST_SECONDS each. Everything runs on this machine. Run it with -benchtime 1x.
func BenchmarkFloods(b *testing.B) {
	seconds := fromEnv(b, "KUDOS_TEST_SECONDS", 10)
	f := newFlooded(b)
	measure := func(name string) {
		p99, failed := f.use(seconds)
		require.Empty(b, failed, name)
		for role, at := range p99 {
			b.ReportMetric(float64(at)/1e6, name+"-"+role+"-p99-ms")
		}
	}
	measure("none")
	f.each(func(x flood) { measure(x.name) })
	measure("none-again")
}
