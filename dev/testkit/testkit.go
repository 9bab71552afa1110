// Package testkit is what the tests of package stream and of those below it share: an embedded broker each, which they
// fill and disturb, waits with a bound, and a look for goroutines that were left behind. Only _test files import it.
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

// Log discards what is logged, or writes it to stderr if KUDOS_TEST_LOG is set.
func Log() *slog.Logger {
	if os.Getenv("KUDOS_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Context ends after Patience.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// WaitFor waits for a condition that holds at the latest after Patience.
func WaitFor(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for tick := time.NewTicker(2 * time.Millisecond); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", Patience, what)
		}
	}
}

// Label marks this goroutine and all that come from it as this test's, for Goroutines.
func Label(t testing.TB) {
	name, _, _ := strings.Cut(t.Name(), "/")
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("test", name)))
}

// LeavesNothing fails the test if goroutines of it are left after it and its other clean-ups.
func LeavesNothing(t testing.TB) {
	t.Cleanup(func() {
		if left := remaining(func() []string { return Goroutines(t, ours...) }); len(left) > 0 {
			t.Fatalf("%d goroutines are left:\n\n%s", len(left), strings.Join(left, "\n\n"))
		}
	})
}

// remaining returns what is left in the end: goroutines get some time to end by themselves.
func remaining(goroutines func() []string) []string {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(Patience); ; <-tick.C {
		if left := goroutines(); len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// ours are words in the stacks of the goroutines that tests here start.
var ours = []string{
	"kudos/stream.(", "kudos/stream/kafka.(", "kudos/stream/store.(", "lovoo/goka", "franz-go/pkg/kgo.(",
}

// Goroutines returns the stacks of this test's goroutines that name one of the words, as in "pkg.(*type).method+".
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
			// One text stands for all goroutines with the same stack.
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

// Main runs a package's tests, and looks once more when all are over: what a timer has started bears no test's name.
func Main(m *testing.M) int {
	code := m.Run()
	// What a client that is closed still does ends by itself.
	if left := remaining(func() []string { return goroutinesWith("", ours...) }); code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "%d goroutines are left:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
		code = 1
	}
	return code
}

const requestTimeout = 10 * time.Second

// Cluster is a broker in this process.
type Cluster struct {
	*kfake.Cluster
	t testing.TB
}

// NewCluster starts an empty one, for as long as the test runs.
func NewCluster(t testing.TB, opts ...kfake.Opt) *Cluster {
	opts = append([]kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID("test-cluster"),
		kfake.GroupMinSessionTimeout(time.Millisecond),
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

// Client makes a client, which the test's end closes.
func (c *Cluster) Client(opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryTimeout(requestTimeout), kgo.MetadataMinAge(250 * time.Millisecond),
	}, opts...)...)
	require.NoError(c.t, err)
	c.t.Cleanup(cl.Close)
	return cl
}

// Produce writes records without a transaction, all in one batch a partition.
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

// Add writes n Records, numbered from a number on, to each partition of a topic.
func (c *Cluster) Add(topic string, from, n int) {
	var all []*kgo.Record
	for p := range c.PartitionInfos(topic) {
		all = append(all, Records(topic, int32(p), from, n)...)
	}
	c.Produce(all...)
}

// Join makes a real member of a group that consumes a topic, which stays until leave.
func (c *Cluster) Join(group, topic string) (id string, generation int32, leave func()) {
	joined := make(chan struct{}, 10)
	cl := c.Client(
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
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

// Transact writes records in a transaction and ends it; end nil leaves it open.
func (c *Cluster) Transact(id string, end *kgo.TransactionEndTry, records ...*kgo.Record) {
	ctx := Context(c.t)
	cl := c.Client(kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
	require.NoError(c.t, cl.BeginTransaction())
	require.NoError(c.t, cl.ProduceSync(ctx, records...).FirstErr())
	if end != nil {
		require.NoError(c.t, cl.EndTransaction(ctx, *end))
	}
}

// Commit and Abort are how Transact ends.
func Commit() *kgo.TransactionEndTry { end := kgo.TryCommit; return &end }
func Abort() *kgo.TransactionEndTry  { end := kgo.TryAbort; return &end }

// Record makes one.
func Record(topic string, partition int32, key, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Key: []byte(key), Value: []byte(value)}
}

// Records makes n records with keys and values that tell their number.
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

// CountRequests counts what arrives, by key.
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

// RequestCounts are numbers of requests.
type RequestCounts struct{ n [100]atomic.Int64 }

// Of is the number of requests with these keys.
func (r *RequestCounts) Of(keys ...kmsg.Key) (sum int64) {
	for _, k := range keys {
		sum += r.n[k].Load()
	}
	return sum
}

// Gauges are what a collector shows, by name and labels.
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
