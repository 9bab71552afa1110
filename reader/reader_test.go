package reader

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
	"kudos/stream/kafka"
)

// foldedTo is the place in likes that the state table of these tests is as of.
const foldedTo = 10

// likesEnd is where each partition of likes ends.
const likesEnd = foldedTo + 5

// roleRig is a reader that runs against an embedded broker, without MySQL.
type roleRig struct {
	*Reader
	t       *testing.T
	metrics *prometheus.Registry
	inHand  chan struct{} // has one for each request whose answer has begun
	stop    context.CancelFunc
	ended   chan error // what Run returned
}

// broker is an embedded one, as the fold has left it: post 1 has three likes, in
// whichever of the two partitions it is. Some events are not folded yet.
func broker(t *testing.T) kafka.Options {
	t.Helper()
	const partitions = 2
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, schema.TopicLikes, schema.TopicState, schema.TopicTrending))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	kafka := kafka.DefaultOptions()
	kafka.Brokers = cluster.ListenAddrs()
	cl, err := kafka.NewClient(slog.New(slog.DiscardHandler), kgo.DefaultProduceTopic(schema.TopicState), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer cl.Close()
	records := []*kgo.Record{{
		Partition: schema.PartitionFor(1, partitions),
		Key:       schema.AppendCountsKey(nil, 1), Value: schema.AppendCounts(nil, schema.Counts{Likes: 3}),
	}}
	progress := schema.AppendProgress(nil, &schema.Progress{NextOffset: foldedTo, SourceID: schema.TopicID{1}, Partitions: partitions})
	for p := range int32(partitions) {
		records = append(records, &kgo.Record{Partition: p, Key: []byte(schema.StateProgressKey), Value: progress})
	}
	for p := range int32(partitions) {
		for range likesEnd {
			records = append(records, &kgo.Record{Topic: schema.TopicLikes, Partition: p, Value: []byte("{}")})
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, cl.ProduceSync(ctx, records...).FirstErr())
	return kafka
}

// newRole makes a reader that change has set up, and does not run it.
func newRole(t *testing.T, change func(*Options)) *roleRig {
	t.Helper()
	o := DefaultOptions()
	o.HTTPAddr, o.StateDir, o.CacheBytes = "127.0.0.1:0", t.TempDir(), 8<<20
	if change != nil {
		change(&o)
	}
	r := &roleRig{t: t, metrics: prometheus.NewRegistry(), inHand: make(chan struct{}, 100), ended: make(chan error, 1)}
	var err error
	r.Reader, err = New(o, broker(t), nil, slog.New(slog.DiscardHandler), r.metrics)
	require.NoError(t, err)
	all := r.handler
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.inHand <- struct{}{}
		all.ServeHTTP(w, req)
	})
	return r
}

// startRole runs a reader until the test ends, and waits until it is ready.
func startRole(t *testing.T, change func(*Options)) *roleRig {
	t.Helper()
	r := newRole(t, change)
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.ended <- r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		receive(t, done, "Run must end")
	})
	receive(t, r.Listening(), "Run must listen")
	require.Eventually(t, func() bool { return r.Ready() == nil }, patience, time.Millisecond, "the reader must become ready")
	return r
}

func receive[T any](t *testing.T, ch <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-ch:
	case <-time.After(patience):
		require.FailNow(t, what)
	}
	return value
}

// ask sends a request on a connection of its own; headers come as pairs. It may be
// called from any goroutine. The body is the caller's to close.
func (r *roleRig) ask(method, path string, headers ...string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.Addr()+path, nil)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return client.Do(req)
}

// get is the whole answer to a GET.
func (r *roleRig) get(path string, headers ...string) answered {
	r.t.Helper()
	resp, err := r.ask(http.MethodGet, path, headers...)
	require.NoError(r.t, err)
	return r.whole(resp)
}

func (r *roleRig) whole(resp *http.Response) answered {
	r.t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err, "the answer must be whole")
	return answered{r.t, resp.StatusCode, resp.Header, string(body)}
}

// openStream opens a live stream of post 1 and reads its beginning.
func (r *roleRig) openStream(headers ...string) *http.Response {
	r.t.Helper()
	resp, err := r.ask(http.MethodGet, "/v1/stream?post_ids=1", headers...)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(r.t, http.StatusOK, resp.StatusCode)
	require.Equal(r.t, "text/event-stream", resp.Header.Get("Content-Type"))
	begin := make([]byte, len("retry: "))
	_, err = io.ReadFull(resp.Body, begin)
	require.NoError(r.t, err)
	require.Equal(r.t, "retry: ", string(begin))
	return resp
}

// metric is the value of a metric of one series, its label's value last.
func (r *roleRig) metric(name, label, value string) (float64, bool) {
	r.t.Helper()
	families, err := r.metrics.Gather()
	require.NoError(r.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := m.GetLabel()
			if f.GetName() == name && len(labels) == 1 && labels[0].GetName() == label && labels[0].GetValue() == value {
				return m.GetGauge().GetValue(), true
			}
		}
	}
	return 0, false
}

func TestReaderServesEverythingOnOneAddress(t *testing.T) {
	const listed = "https://www.example.com"
	r := startRole(t, func(o *Options) { o.Origins, o.ProducerURL = []string{listed}, "https://likes.example.com" })

	a := r.get("/v1/posts/1/likes", "Origin", listed)
	partition := schema.PartitionFor(1, 2)
	a.requireJSON(http.StatusOK, `{"post_id":"1","likes":3,"dislikes":0,"as_of":{"partition":`+strconv.Itoa(int(partition))+`,"offset":10}}`)
	require.Equal(t, listed, a.header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, a.header.Get("Access-Control-Expose-Headers"), "Kudos-As-Of")
	r.get("/v1/posts").requireProblem(http.StatusNotFound, "not-found")
	require.Contains(t, r.get("/v1/analytics/likes").requireProblem(http.StatusServiceUnavailable, "no-mysql"), "neither mysql.dsn nor mysql.shards is set")

	for path, contentType := range map[string]string{
		"/":              "text/html; charset=utf-8",
		"/assets/app.js": "text/javascript; charset=utf-8",
		"/openapi.yaml":  "application/yaml",
	} {
		a := r.get(path)
		require.Equal(t, http.StatusOK, a.status, path)
		require.Equal(t, contentType, a.header.Get("Content-Type"), path)
		require.NotEmpty(t, a.body, path)
	}
	r.get("/dashboard.json").requireJSON(http.StatusOK, `{"producer_url":"https://likes.example.com"}`)

	stream := r.openStream("Origin", listed)
	require.Equal(t, listed, stream.Header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "Retry-After", stream.Header.Get("Access-Control-Expose-Headers"))
	other := r.openStream("Origin", "https://www.example.org")
	require.Empty(t, other.Header.Get("Access-Control-Allow-Origin"))
	resp, err := r.ask(http.MethodOptions, "/v1/stream", "Origin", listed,
		"Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "last-event-id")
	require.NoError(t, err)
	a = r.whole(resp)
	require.Equal(t, http.StatusNoContent, a.status)
	require.Equal(t, "last-event-id", a.header.Get("Access-Control-Allow-Headers"))

	for _, p := range []string{"0", "1"} {
		offset, there := r.metric("kudos_reader_position", "partition", p)
		require.True(t, there, "partition %s", p)
		require.EqualValues(t, foldedTo, offset, "partition %s", p)
	}
}

func TestReaderWithoutDashboard(t *testing.T) {
	r := startRole(t, func(o *Options) { o.Dashboard = false })
	for _, path := range []string{"/", "/assets/app.js", "/dashboard.json"} {
		r.get(path).requireProblem(http.StatusNotFound, "not-found")
	}
	require.Equal(t, http.StatusOK, r.get("/v1/posts/1/likes").status)
}

// At shutdown nothing new is taken and streams end; a request that waits for its event is
// answered all the same, from copies that are still there.
func TestReaderShutdownAnswersWhatIsInHand(t *testing.T) {
	r := startRole(t, func(o *Options) { o.MaxWait = time.Second })
	stream := r.openStream()
	receive(t, r.inHand, "the stream")
	type outcome struct {
		resp *http.Response
		err  error
	}
	waiting := make(chan outcome, 1)
	go func() {
		resp, err := r.ask(http.MethodGet, "/v1/posts/1/likes?min_offset=11")
		waiting <- outcome{resp, err}
	}()
	receive(t, r.inHand, "the request must be in hand")

	r.stop()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", r.Addr())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, patience, time.Millisecond, "nothing new is taken")
	require.EqualError(t, r.Ready(), "reader: shutting down")
	r.whole(stream)

	last := receive(t, waiting, "the request must be answered")
	require.NoError(t, last.err)
	a := r.whole(last.resp)
	a.requireProblem(http.StatusServiceUnavailable, "not-covered")
	require.Contains(t, a.body, `"as_of":[{"partition":`+strconv.Itoa(int(schema.PartitionFor(1, 2)))+`,"offset":10}]`)
	require.NoError(t, receive(t, r.ended, "Run must end"))
}

// A request that waits longer than shutdown may take is cut off, and Run says so.
func TestReaderShutdownIsBounded(t *testing.T) {
	r := startRole(t, func(o *Options) {
		o.MaxWait, o.ShutdownTimeout = patience, 50*time.Millisecond
		o.WriteTimeout = 2 * patience
	})
	cut := make(chan error, 1)
	go func() {
		resp, err := r.ask(http.MethodGet, "/v1/posts/1/likes?min_offset=11")
		if err == nil {
			_ = resp.Body.Close()
		}
		cut <- err
	}()
	receive(t, r.inHand, "the request must be in hand")
	r.stop()
	require.ErrorContains(t, receive(t, r.ended, "Run must end"), "reader: requests were cut off after 50ms")
	require.Error(t, receive(t, cut, "the request must end"))
}

func TestReaderRunRefuses(t *testing.T) {
	r := startRole(t, nil)
	require.EqualError(t, r.Run(t.Context()), "reader: Run was called twice")
	require.Equal(t, http.StatusOK, r.get("/v1/posts/1/likes").status, "the first goes on")
	taken := newRole(t, func(o *Options) { o.HTTPAddr = r.Addr() })
	require.ErrorContains(t, taken.Run(t.Context()), "reader: listening on "+r.Addr()+" (set reader.http_addr to a free host:port): ")
}

func TestNewReaderRefuses(t *testing.T) {
	log, reg := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	cluster := kafka.DefaultOptions()
	_, err := New(Options{}, cluster, nil, log, reg)
	require.ErrorContains(t, err, "reader options: reader.http_addr")
	cluster.Brokers = nil
	_, err = New(DefaultOptions(), cluster, nil, log, reg)
	require.ErrorContains(t, err, "kafka.brokers")

	cluster = kafka.DefaultOptions()
	_, err = New(DefaultOptions(), cluster, nil, log, reg)
	require.NoError(t, err)
	_, err = New(DefaultOptions(), cluster, nil, log, reg)
	require.ErrorContains(t, err, "registering the metrics")
}
