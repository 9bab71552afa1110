// Package testkit has helpers for the tests of package stream and the packages below it: embedded brokers that tests
// fill and disturb, bounded waits, and a check for leaked goroutines. Only _test files import it.
package testkit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Patience bounds every wait of these tests.
const Patience = 20 * time.Second

// Log discards log output, or writes it to stderr if KUDOS_TEST_LOG is set.
func Log() *slog.Logger {
	if os.Getenv("KUDOS_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Output is what several goroutines have written.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Context ends after Patience.
func Context(t testing.TB) context.Context { return Within(t, Patience) }

// Within ends after d, or with the test.
func Within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// Canceled returns a context that has ended.
func Canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// WaitFor waits for a condition, for Patience at most.
func WaitFor(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for tick := time.NewTicker(2 * time.Millisecond); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", Patience, what)
		}
	}
}

// Receive waits for a value from a channel, or for its close.
func Receive[T any](t testing.TB, ch <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-ch:
	case <-time.After(Patience):
		require.FailNow(t, what, "waited %v", Patience)
	}
	return value
}

// Later calls f in another goroutine, and returns a channel that receives its result.
func Later[T any](f func() T) <-chan T {
	result := make(chan T, 1)
	go func() { result <- f() }()
	return result
}

// Label labels this goroutine and all that it starts with the test's name, for Goroutines.
func Label(t testing.TB) {
	name, _, _ := strings.Cut(t.Name(), "/")
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("test", name)))
}

// LeavesNothing fails the test if it leaks goroutines past its other cleanups.
func LeavesNothing(t testing.TB) {
	t.Cleanup(func() {
		if left := remaining(func() []string { return Goroutines(t, ours...) }); len(left) > 0 {
			t.Fatalf("%d goroutines leaked:\n\n%s", len(left), strings.Join(left, "\n\n"))
		}
	})
}

// remaining returns the goroutines left in the end; they get some time to finish.
func remaining(goroutines func() []string) []string {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(Patience); ; <-tick.C {
		if left := goroutines(); len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// ours identify, by their stacks, the goroutines that these tests start.
var ours = []string{
	"kudos/stream.(", "kudos/stream/kafka.(", "kudos/stream/store.(", "lovoo/goka", "franz-go/pkg/kgo.(",
}

// Goroutines returns the stacks of this test's goroutines that contain one of the words, as in "pkg.(*type).method+".
func Goroutines(t testing.TB, words ...string) []string {
	name, _, _ := strings.Cut(t.Name(), "/")
	return goroutinesWith(fmt.Sprintf("%q:%q", "test", name), words...)
}

func goroutinesWith(label string, words ...string) []string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		panic(err)
	}
	var found []string
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		if !strings.Contains(stack, label) || strings.Contains(stack, "testing.tRunner") { // the test itself
			continue
		}
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(stack, w) }) {
			// One entry represents all goroutines with the same stack.
			count, _, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine profile: "), " @ ")
			n, err := strconv.Atoi(count[strings.LastIndex(count, "\n")+1:])
			if err != nil {
				panic(err)
			}
			found = append(found, slices.Repeat([]string{stack}, n)...)
		}
	}
	return found
}

// Main runs a package's tests and checks for leaked goroutines last: those started by timers have no test's label.
func Main(m *testing.M) int {
	code := m.Run()
	// What a closed client still does ends by itself.
	if left := remaining(func() []string { return goroutinesWith("", ours...) }); code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "%d goroutines leaked:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
		code = 1
	}
	return code
}

const requestTimeout = 10 * time.Second

// Cluster is an embedded broker.
type Cluster struct {
	*kfake.Cluster
	t testing.TB
}

// NewCluster starts an empty broker that is closed at the end of the test.
func NewCluster(t testing.TB, opts ...kfake.Opt) *Cluster {
	opts = append([]kfake.Opt{
		kfake.NumBrokers(1), kfake.ClusterID("test-cluster"), kfake.GroupMinSessionTimeout(time.Millisecond),
		kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "100000000000"}),
	}, opts...)
	Label(t)
	c, err := kfake.NewCluster(opts...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	LeavesNothing(t)
	return &Cluster{Cluster: c, t: t}
}

// Topic creates a topic.
func (c *Cluster) Topic(name string, partitions int32) {
	require.NoError(c.t, c.CreateTopic(name, partitions, nil))
}

// Client returns a client that is closed at the end of the test.
func (c *Cluster) Client(opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryTimeout(requestTimeout), kgo.MetadataMinAge(250 * time.Millisecond),
	}, opts...)...)
	require.NoError(c.t, err)
	c.t.Cleanup(cl.Close)
	return cl
}

// Produce writes records without a transaction, in one batch per partition.
func (c *Cluster) Produce(records ...*kgo.Record) {
	cl := c.Client(kgo.ManualFlushing(), kgo.MaxBufferedRecords(len(records)+1))
	defer cl.Close()
	var failed kgo.FirstErrPromise
	for _, rec := range records {
		cl.Produce(Context(c.t), rec, failed.Promise())
	}
	require.NoError(c.t, cl.Flush(Context(c.t)))
	require.NoError(c.t, failed.Err())
}

// Fill creates a topic with n Records in each partition.
func (c *Cluster) Fill(topic string, partitions int32, n int) {
	c.Topic(topic, partitions)
	if n > 0 {
		c.Add(topic, 0, n)
	}
}

// Add writes n Records, numbered starting at from, to each partition of a topic.
func (c *Cluster) Add(topic string, from, n int) {
	var all []*kgo.Record
	for p := range c.PartitionInfos(topic) {
		all = append(all, Records(topic, int32(p), from, n)...)
	}
	c.Produce(all...)
}

// Join adds a real member, which consumes the topic, to a group, until leave is called.
func (c *Cluster) Join(group, topic string) (id string, generation int32, leave func()) {
	joined := make(chan struct{}, 10)
	cl := c.Client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.SessionTimeout(Patience), kgo.HeartbeatInterval(50*time.Millisecond),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) { joined <- struct{}{} }))
	select {
	case <-joined:
	case <-time.After(Patience):
		c.t.Fatal("joining the group took too long")
	}
	id, generation = cl.GroupMetadata()
	return id, generation, cl.Close
}

// Transact writes records in a transaction and ends it; nil leaves it open.
func (c *Cluster) Transact(id string, end *kgo.TransactionEndTry, records ...*kgo.Record) {
	ctx := Context(c.t)
	cl := c.Client(kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
	require.NoError(c.t, cl.BeginTransaction())
	require.NoError(c.t, cl.ProduceSync(ctx, records...).FirstErr())
	if end != nil {
		require.NoError(c.t, cl.EndTransaction(ctx, *end))
	}
}

// Commit and Abort are values for Transact's end.
func Commit() *kgo.TransactionEndTry { end := kgo.TryCommit; return &end }
func Abort() *kgo.TransactionEndTry  { end := kgo.TryAbort; return &end }

// Record returns a record.
func Record(topic string, partition int32, key, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Key: []byte(key), Value: []byte(value)}
}

// Records returns n records whose keys and values contain their number.
func Records(topic string, partition int32, from, n int) []*kgo.Record {
	recs := make([]*kgo.Record, n)
	for i := range recs {
		recs[i] = Record(topic, partition, fmt.Sprintf("key-%06d", from+i), fmt.Sprintf("value-%d", from+i))
	}
	return recs
}

// End returns the end of a partition's log.
func (c *Cluster) End(topic string, partition int32) int64 {
	return c.PartitionInfo(topic, partition).HighWatermark
}

// CountRequests counts the broker's requests by key.
func (c *Cluster) CountRequests() *RequestCounts {
	counts := &RequestCounts{}
	c.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if k := req.Key(); int(k) < len(counts.n) {
			counts.n[k].Add(1)
		}
		return nil, nil, false
	})
	return counts
}

// RequestCounts are numbers of requests by key.
type RequestCounts struct{ n [100]atomic.Int64 }

// Of is the number of requests with these keys.
func (r *RequestCounts) Of(keys ...kmsg.Key) (sum int64) {
	for _, k := range keys {
		sum += r.n[k].Load()
	}
	return sum
}

// Gauges returns a collector's values, by name and label values.
func Gauges(t testing.TB, c prometheus.Collector) map[string]float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, label := range m.Label {
				name += " " + label.GetValue()
			}
			if m.Gauge != nil {
				got[name] = m.Gauge.GetValue()
			}
		}
	}
	return got
}
