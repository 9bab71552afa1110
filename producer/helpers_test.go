package producer

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
	"kudos/stream/kafka"
)

const (
	partitions = 4
	// patience bounds every wait of a test.
	patience = 20 * time.Second
)

// rig is a producer that runs against an embedded broker.
type rig struct {
	*Producer
	t       *testing.T
	cluster *kfake.Cluster
	metrics *prometheus.Registry
	stop    context.CancelFunc // ends Run
	ended   chan error         // what Run returned
}

func startCluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(partitions, schema.TopicLikes)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster
}

func kafkaOptions(cluster *kfake.Cluster) kafka.Options {
	kafka := kafka.DefaultOptions()
	kafka.Brokers = cluster.ListenAddrs()
	return kafka
}

// newRig makes a producer that change has set up, and does not run it.
func newRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	o := DefaultOptions()
	o.HTTPAddr = "127.0.0.1:0"
	if change != nil {
		change(&o)
	}
	r := &rig{t: t, cluster: startCluster(t), metrics: prometheus.NewRegistry(), ended: make(chan error, 1)}
	var err error
	r.Producer, err = New(o, kafkaOptions(r.cluster), slog.New(slog.DiscardHandler), r.metrics)
	require.NoError(t, err)
	return r
}

// start runs a producer until the test ends, and waits until it is ready.
func start(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	r := newRig(t, change)
	r.run()
	require.Eventually(t, func() bool { return r.Ready() == nil }, patience, time.Millisecond, "the producer must become ready")
	return r
}

func (r *rig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.ended <- r.Run(ctx)
	}()
	r.t.Cleanup(func() {
		cancel()
		wait(r.t, done, "Run must end")
	})
	wait(r.t, r.Listening(), "Run must listen")
}

func wait(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		require.Fail(t, what)
	}
}

// answerTo is what a request was answered.
type answerTo struct {
	status int
	header http.Header
	body   string
}

func (a answerTo) requireJSON(t *testing.T, status int, want string) {
	t.Helper()
	require.Equal(t, status, a.status, a.body)
	require.JSONEq(t, want, a.body)
	contentType := "application/json"
	if status >= 400 {
		contentType = "application/problem+json"
	}
	require.Equal(t, contentType, a.header.Get("Content-Type"))
}

func (a answerTo) decode(t *testing.T, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(a.body), into), a.body)
}

// place is the answer's position.
func (a answerTo) place(t *testing.T) (at position) {
	t.Helper()
	require.Equal(t, http.StatusAccepted, a.status, a.body)
	a.decode(t, &at)
	return at
}

// send sends a request; headers come as pairs.
func (r *rig) send(method, path, body string, headers ...string) answerTo {
	r.t.Helper()
	a, err := r.trySend(method, path, strings.NewReader(body), headers...)
	require.NoError(r.t, err)
	return a
}

// trySend may be called from any goroutine.
func (r *rig) trySend(method, path string, body io.Reader, headers ...string) (answerTo, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.Addr()+path, body)
	if err != nil {
		return answerTo{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return answerTo{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answerTo{resp.StatusCode, resp.Header, string(b)}, err
}

func (r *rig) put(path string) answerTo { r.t.Helper(); return r.send(http.MethodPut, path, "") }

func (r *rig) postLikeBody(path, body string) answerTo {
	r.t.Helper()
	return r.send(http.MethodPost, path, body, "Content-Type", "application/json")
}

func (r *rig) postLines(query string, lines ...string) answerTo {
	r.t.Helper()
	return r.send(http.MethodPost, "/v1/likes:batch"+query, strings.Join(lines, "\n"), "Content-Type", "application/x-ndjson")
}

// consume reads n records of likes, from the start, and wants no more to be there.
func (r *rig) consume(n int) []*kgo.Record {
	r.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(r.cluster.ListenAddrs()...), kgo.ConsumeTopics(schema.TopicLikes),
		kgo.FetchMaxWait(50*time.Millisecond))
	require.NoError(r.t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var records []*kgo.Record
	for len(records) < n {
		fetches := client.PollFetches(ctx)
		require.NoError(r.t, ctx.Err(), "likes holds %d records, not %d", len(records), n)
		records = append(records, fetches.Records()...)
	}
	require.Equal(r.t, int64(n), r.written(), "records in likes")
	return records
}

// written is how many records the likes topic holds.
func (r *rig) written() (n int64) {
	for _, p := range r.cluster.PartitionInfos(schema.TopicLikes) {
		n += p.HighWatermark
	}
	return n
}

// record finds the record at a place.
func record(t *testing.T, records []*kgo.Record, at position) (*kgo.Record, schema.Event) {
	t.Helper()
	for _, r := range records {
		if r.Partition == at.Partition && r.Offset == at.Offset {
			var e schema.Event
			require.NoError(t, schema.DecodeEvent(r.Key, r.Value, &e))
			return r, e
		}
	}
	require.Fail(t, "no record", "at %+v", at)
	return nil, schema.Event{}
}

// hold makes the broker keep produce requests waiting. It returns a channel that is
// closed when the first has come, and what lets all of them go on.
func (r *rig) hold() (held <-chan struct{}, release func()) {
	came, freed := make(chan struct{}), make(chan struct{})
	var first, free sync.Once
	r.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		r.cluster.KeepControl()
		first.Do(func() { close(came) })
		r.cluster.SleepControl(func() { <-freed })
		return nil, nil, false
	})
	release = func() { free.Do(func() { close(freed) }) }
	r.t.Cleanup(release)
	return came, release
}

// metric is the value of a metric of one series, labels as pairs.
func (r *rig) metric(name string, labels ...string) float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	require.NoError(r.t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if have[labels[i]] != labels[i+1] {
					continue series
				}
			}
			switch {
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				return m.GetGauge().GetValue()
			}
			return float64(m.GetHistogram().GetSampleCount())
		}
	}
	require.Fail(r.t, "no metric", "%s%v", name, labels)
	return 0
}
