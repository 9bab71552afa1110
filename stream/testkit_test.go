package stream

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

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience bounds every wait of these tests.
const patience = 20 * time.Second

func testLog() *slog.Logger {
	if os.Getenv("KUDOS_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// testContext ends after patience.
func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// waitFor waits for a condition that holds at the latest after patience.
func waitFor(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for tick := time.NewTicker(2 * time.Millisecond); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// label marks this goroutine and all that come from it as this test's, so that goroutines tells them from those of tests
// beside it.
func label(t testing.TB) {
	name, _, _ := strings.Cut(t.Name(), "/")
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("test", name)))
}

// leavesNothing fails the test if goroutines of it are left after it and its other clean-ups.
func leavesNothing(t testing.TB) {
	t.Cleanup(func() {
		if left := remaining(func() []string { return goroutines(t, ours...) }); len(left) > 0 {
			t.Fatalf("%d goroutines are left:\n\n%s", len(left), strings.Join(left, "\n\n"))
		}
	})
}

// remaining returns what is left in the end: goroutines get some time to end by themselves.
func remaining(goroutines func() []string) []string {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		if left := goroutines(); len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// ours are words in the stacks of the goroutines that tests here start.
var ours = []string{"kudos/stream.(", "lovoo/goka", "franz-go/pkg/kgo.("}

// goroutines returns the stacks of this test's goroutines that name one of the words, as in "pkg.(*type).method+".
func goroutines(t testing.TB, words ...string) []string {
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

// TestMain looks once more when all tests are over: what a timer has started bears no test's name.
func TestMain(m *testing.M) {
	code := m.Run()
	// What a client that is closed still does ends by itself.
	if left := remaining(func() []string { return goroutinesWith("", ours...) }); code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "%d goroutines are left:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
		code = 1
	}
	os.Exit(code)
}

// cluster is a broker in this process.
type cluster struct {
	*kfake.Cluster
	t     testing.TB
	kafka KafkaOptions
}

func newCluster(t testing.TB, opts ...kfake.Opt) *cluster {
	opts = append([]kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID("test-cluster"),
		kfake.GroupMinSessionTimeout(time.Millisecond),
		kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "100000000000"}),
	}, opts...)
	label(t)
	c, err := kfake.NewCluster(opts...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	leavesNothing(t)
	kafka := DefaultKafkaOptions()
	kafka.Brokers = c.ListenAddrs()
	kafka.RequestTimeout = 10 * time.Second
	return &cluster{Cluster: c, t: t, kafka: kafka}
}

func (c *cluster) topic(name string, partitions int32) {
	require.NoError(c.t, c.CreateTopic(name, partitions, nil))
}

func (c *cluster) client(opts ...kgo.Opt) *kgo.Client {
	cl, err := c.kafka.NewClient(testLog(), append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	require.NoError(c.t, err)
	c.t.Cleanup(cl.Close)
	return cl
}

// produce writes records without a transaction, all in one batch a partition.
func (c *cluster) produce(records ...*kgo.Record) {
	cl := c.client(kgo.ManualFlushing(), kgo.MaxBufferedRecords(len(records)+1))
	defer cl.Close()
	var failed kgo.FirstErrPromise
	for _, rec := range records {
		cl.Produce(testContext(c.t), rec, failed.Promise())
	}
	require.NoError(c.t, cl.Flush(testContext(c.t)))
	require.NoError(c.t, failed.Err())
}

// transact writes records in a transaction and ends it; end nil leaves it open.
func (c *cluster) transact(id string, end *kgo.TransactionEndTry, records ...*kgo.Record) {
	ctx := testContext(c.t)
	cl := c.client(kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
	require.NoError(c.t, cl.BeginTransaction())
	require.NoError(c.t, cl.ProduceSync(ctx, records...).FirstErr())
	if end != nil {
		require.NoError(c.t, cl.EndTransaction(ctx, *end))
	}
}

func committed() *kgo.TransactionEndTry { end := kgo.TryCommit; return &end }
func aborted() *kgo.TransactionEndTry   { end := kgo.TryAbort; return &end }

func record(topic string, partition int32, key, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Key: []byte(key), Value: []byte(value)}
}

// records makes n records with keys and values that tell their number.
func records(topic string, partition int32, from, n int) []*kgo.Record {
	recs := make([]*kgo.Record, n)
	for i := range recs {
		recs[i] = record(topic, partition, fmt.Sprintf("key-%06d", from+i), fmt.Sprintf("value-%d", from+i))
	}
	return recs
}

// end returns the end of a partition's log.
func (c *cluster) end(topic string, partition int32) int64 {
	return c.PartitionInfo(topic, partition).HighWatermark
}

// countRequests counts what arrives, by key.
func (c *cluster) countRequests() *requestCounts {
	counts := &requestCounts{}
	c.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if k := req.Key(); int(k) < len(counts.n) {
			counts.n[k].Add(1)
		}
		return nil, nil, false
	})
	return counts
}

type requestCounts struct{ n [100]atomic.Int64 }

func (r *requestCounts) of(keys ...kmsg.Key) (sum int64) {
	for _, k := range keys {
		sum += r.n[k].Load()
	}
	return sum
}

// values returns the committed values of a partition in order.
func (c *cluster) values(topic string, partition int32) []string {
	ctx := testContext(c.t)
	cl := c.client()
	defer cl.Close()
	start, end, err := Bounds(ctx, cl, topic, partition)
	require.NoError(c.t, err)
	var values []string
	for r := newLogReader(cl, topic, partition, 0); start < end; {
		f, err := r.fetch(ctx, start)
		require.NoError(c.t, err)
		for _, rec := range f.records {
			values = append(values, string(rec.Value))
		}
		start = f.next
	}
	return values
}
