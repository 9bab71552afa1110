package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/bench/producer"
	"kudos/dev/testkit"
	"kudos/schema"
)

// BenchmarkLive measures live counts: one post gets 20,000 likes per second for 30 seconds (KUDOS_TEST_RATE,
// KUDOS_TEST_SECONDS) and has 2,000 subscribers (KUDOS_TEST_STREAMS), half of them over SSE, half over WebSocket.
// Kafka, a processor, a reader and all subscribers run on this machine. Freshness is the time from passing a like to
// the Kafka client until a subscriber has a count that includes it, for every hundredth like and every subscriber. Each
// must see the final count. Run it with -benchtime 1x.
func BenchmarkLive(b *testing.B) {
	streams, rate, seconds := fromEnv(b, "KUDOS_TEST_STREAMS", 2000), fromEnv(b, "KUDOS_TEST_RATE", 20_000),
		fromEnv(b, "KUDOS_TEST_SECONDS", 30)
	s := newRealSystem(b)
	s.processor("processor").start()
	r := s.startReader("reader")
	waitFor(b, 5*time.Minute, "the reader to be ready", r.ready)
	l := &liveLoad{s: s, likes: rate * seconds}
	l.sent = make([]atomic.Int64, l.likes+1)
	ctx := testkit.Within(b, 5*time.Minute)
	var watching errgroup.Group
	var ready sync.WaitGroup
	ready.Add(streams)
	for i := range streams {
		watching.Go(func() error { return l.watch(ctx, r.base, i%2 == 0, ready.Done) })
	}
	ready.Wait()
	before := r.sums()
	begin := time.Now()
	l.publish(rate)
	published := time.Since(begin)
	require.NoError(b, watching.Wait())
	after := r.sums()
	b.ReportMetric(float64(l.likes)/published.Seconds(), "likes/s")
	b.ReportMetric(float64(l.messages.Load())/published.Seconds(), "messages/s")
	p50, p99, _, most := producer.Percentiles(l.delays)
	b.ReportMetric(p50, "p50-ms")
	b.ReportMetric(p99, "p99-ms")
	b.ReportMetric(most, "max-ms")
	const mib = 1 << 20
	b.ReportMetric(before["process_resident_memory_bytes"]/mib, "rss-before-MiB")
	b.ReportMetric(after["process_resident_memory_bytes"]/mib, "rss-after-MiB")
	b.ReportMetric((after["process_cpu_seconds_total"]-before["process_cpu_seconds_total"])/published.Seconds(),
		"reader-cpus")
	b.ReportMetric(after["kudos_reader_streams_dropped_total"], "dropped")
}

// liveLoad is one post, its likes and its subscribers.
type liveLoad struct {
	s     *system
	likes int
	// sent is when each like was passed to the client, in Unix nanoseconds. The likes are in one partition and each
	// from another user, so a count of n includes the first n.
	sent     []atomic.Int64
	messages atomic.Int64

	mu     sync.Mutex
	delays []time.Duration
}

const livePost = 42

func (l *liveLoad) publish(rate int) {
	w := l.s.writer(schema.TopicLikes, kgo.ProducerLinger(2*time.Millisecond), kgo.MaxBufferedRecords(1<<20))
	const tick = 5 * time.Millisecond
	pace := time.NewTicker(tick)
	defer pace.Stop()
	begin := time.Now()
	for n := 0; n < l.likes; <-pace.C {
		due := min(l.likes, int(time.Since(begin).Seconds()*float64(rate)))
		for ; n < due; n++ {
			l.sent[n+1].Store(time.Now().UnixNano())
			w.like(likeNow(livePost, uint64(n)+1))
		}
	}
	require.NoError(l.s.t, w.close())
}

// watch is one subscriber; it ends at the final count.
func (l *liveLoad) watch(ctx context.Context, url string, sse bool, ready func()) error {
	subscribe := overWebSocket
	if sse {
		subscribe = overSSE
	}
	receive, closeIt, err := subscribe(ctx, url+fmt.Sprintf("/v1/stream?post_ids=%d", livePost))
	if err != nil {
		ready()
		return err
	}
	defer closeIt()
	var delays []time.Duration
	shown, first := 0, true
	for shown < l.likes {
		data, err := receive()
		if err != nil {
			return fmt.Errorf("after %d of %d likes: %w", shown, l.likes, err)
		}
		now := time.Now()
		var value struct{ Likes int }
		if err := json.Unmarshal(data, &value); err != nil {
			return err
		}
		if first {
			first = false
			ready()
		} else {
			l.messages.Add(1)
		}
		if value.Likes < shown {
			return fmt.Errorf("count %d received after %d", value.Likes, shown)
		}
		for n := shown/100*100 + 100; n <= value.Likes; n += 100 {
			delays = append(delays, now.Sub(time.Unix(0, l.sent[n].Load())))
		}
		shown = value.Likes
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delays = append(l.delays, delays...)
	return nil
}

func overSSE(ctx context.Context, url string) (receive func() ([]byte, error), closeIt func(), err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}).Do(req)
	if err != nil {
		return nil, nil, err
	}
	lines := bufio.NewScanner(resp.Body)
	return func() ([]byte, error) {
		for lines.Scan() {
			if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
				return data, nil
			}
		}
		return nil, fmt.Errorf("the stream has ended (%s): %w", resp.Status, lines.Err())
	}, func() { resp.Body.Close() }, nil
}

func overWebSocket(ctx context.Context, url string) (receive func() ([]byte, error), closeIt func(), err error) {
	conn, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return nil, nil, err
	}
	return func() ([]byte, error) {
		_, message, err := conn.Read(ctx)
		if err != nil {
			return nil, err
		}
		var m struct{ Data json.RawMessage }
		err = json.Unmarshal(message, &m)
		return m.Data, err
	}, func() { _ = conn.CloseNow() }, nil
}
