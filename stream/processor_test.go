package stream

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/integration/testrun"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// copier is a worker with a state table: it counts its input by value, in transactions of table, output and position.
type copier struct {
	*kafka.Txn
	c     *cluster
	a     Assignment
	store *store.Store
}

func (c *cluster) newCopier(a Assignment, stores *store.Set) *copier {
	txn := kafka.NewTxn(kafka.TxnOptions{IDs: []string{"copier-" + string('0'+byte(a.Partition))}, Member: a.Member,
		Group: testGroup, Kafka: c.kafka, Source: kafka.LogPartition{Topic: a.Topic, Partition: a.Partition},
		Timeout: 10 * time.Second}, testkit.Log())
	return &copier{Txn: txn, c: c, a: a, store: stores.New(testkit.Table, a.Partition)}
}

func (w *copier) Open(ctx context.Context) (kafka.Position, error) {
	if _, err := w.store.CatchUp(ctx, w.Client(), store.Hooks{}); err != nil {
		return kafka.Position{}, err
	}
	offset, ok, err := kafka.CommittedOffset(ctx, w.Client(), testGroup, w.a.Topic, w.a.Partition)
	if !ok {
		offset = 0
	}
	return kafka.Position{Offset: offset, Epoch: -1}, err
}

func (w *copier) Process(ctx context.Context, b *Batch) error {
	if len(b.Records) == 0 {
		return nil
	}
	counts := map[string]uint64{}
	var out []*kgo.Record
	for _, rec := range b.Records {
		key := string('0'+byte(b.Partition)) + string(rec.Value)
		if _, ok := counts[key]; !ok {
			_, err := w.store.Find([]byte(key), func(v []byte) error {
				counts[key] = binary.BigEndian.Uint64(v)
				return nil
			})
			if err != nil {
				return err
			}
		}
		counts[key]++
		out = append(out, testkit.Record(output, b.Partition, key, string(rec.Value)))
	}
	for key, n := range counts {
		out = append([]*kgo.Record{{Topic: testkit.Table, Partition: b.Partition, Key: []byte(key),
			Value: binary.BigEndian.AppendUint64(nil, n)}}, out...)
	}
	if err := w.Commit(ctx, out, b.Next); err != nil {
		return err
	}
	state, last := out[:len(counts)], int64(0)
	for _, rec := range state {
		last = max(last, rec.Offset)
	}
	return w.store.Replay(state, last)
}

func (w *copier) Leave() { require.NoError(w.c.t, w.store.Close()) }

func (c *cluster) copierOptions() ProcessorOptions {
	return ProcessorOptions{Group: testGroup, Input: input, Table: true, Kafka: c.kafka, MaxBatch: 50,
		TickInterval: 20 * time.Millisecond, ParkInterval: 50 * time.Millisecond, SessionTimeout: 10 * time.Second,
		heartbeatInterval: 200 * time.Millisecond, ShutdownTimeout: 5 * time.Second}
}

func (c *cluster) runCopier(dir string) (p *Processor, stores *store.Set, stop func()) {
	stores = store.NewSet(dir, 8<<20, testkit.Log())
	c.t.Cleanup(stores.Close)
	p = NewProcessor(c.copierOptions(), func(a Assignment) Worker { return c.newCopier(a, stores) }, testkit.Log())
	return p, stores, testrun.Start(c.t, "the processor", testkit.Patience, p.Run)
}

// count adds n values to a partition of the input.
func (c *cluster) count(partition int32, n int, value func(i int) string) {
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = testkit.Record(input, partition, "", value(i))
	}
	c.Produce(records...)
}

func copierCluster(t *testing.T, w *testkit.Wire) *cluster {
	c := newCluster(t, w.Option())
	for _, topic := range []string{input, output, testkit.Table} {
		c.Topic(topic, 2)
	}
	return c
}

// requireCopied waits until the first n records of each partition are in the output, once each, and in the state.
func (c *cluster) requireCopied(stores *store.Set, n int) {
	c.t.Helper()
	for p := range int32(2) {
		testkit.WaitFor(c.t, "the output", func() bool { return len(c.values(output, p)) >= n })
		require.Len(c.t, c.values(output, p), n, "each record once")
	}
	for p := byte(0); p < 2; p++ {
		for i, name := range []string{"a", "b", "c"} {
			want := uint64((n + 2 - i) / 3)
			key := string('0'+p) + name
			testkit.WaitFor(c.t, "the state of "+key, func() bool {
				v := get(c.t, stores.Get(testkit.Table, int32(p)), key)
				return len(v) == 8 && binary.BigEndian.Uint64([]byte(v)) == want
			})
		}
	}
}

// The whole path from input to local state, with restarts on the same and an empty directory, and with two processors.
func TestProcessorWithATable(t *testing.T) {
	t.Parallel()
	w := &testkit.Wire{}
	c := copierCluster(t, w)
	total := 0
	add := func(n int) {
		for p := range int32(2) {
			c.count(p, n, func(i int) string { return string('a' + byte(i%3)) })
		}
		total += n
	}
	check := func(stores *store.Set) { t.Helper(); c.requireCopied(stores, total) }
	dir := t.TempDir()
	add(300)
	p, stores, stop := c.runCopier(dir)
	check(stores)
	require.NoError(t, p.Ready())
	stop()
	add(300)
	_, stores, stop = c.runCopier(dir)
	check(stores)
	stop()
	add(300)
	first, stores, stop := c.runCopier(t.TempDir()) // recovers from the changelog alone
	check(stores)
	second, _, _ := c.runCopier(t.TempDir())
	testkit.WaitFor(t, "sharing", func() bool { return assigned(first) == 1 && assigned(second) == 1 })
	add(300)
	for p := range int32(2) {
		testkit.WaitFor(t, "the output", func() bool { return len(c.values(output, p)) == total })
	}
	stop()

	// All traffic is from franz-go: a connection of sarama would give another client name, or none.
	seen := w.Seen()
	require.NotEmpty(t, seen)
	for _, software := range seen {
		require.Equal(t, "kgo", software, "another client talks to the broker: %v", seen)
	}
}

// goka ends at any error of a partition and runs only once, so the group builds a new one for the partition.
func TestProcessorIsRecreated(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 2, 5)
	var panics atomic.Int32
	var seen atomic.Bool
	l.process = func(_ context.Context, w *fakeWorker, b *Batch) error {
		if len(b.Records) > 0 && w.a.Partition == 0 && (panics.Add(1) <= 2 || !seen.Load()) {
			panic("a defect") // goka ends because of it
		}
		return nil
	}
	p, _ := c.run(l, quick)
	p.waitNotReady(t, "a defect", "goka ended unexpectedly")
	l.waitProcessed(1, offsets(0, 5))
	seen.Store(true)
	l.waitProcessed(0, offsets(0, 5))
	p.waitReady(t)
	require.Equal(t, 1, l.count(1, "Fence"), "the other partition is not interrupted")
}

func TestProcessorWaitsForItsTopics(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	l := newLab(t)
	p, _ := c.run(l, quick)
	p.waitNotReady(t, "there is no topic input")
	c.Topic(input, 1)
	p.waitReady(t)

	// A table of another partition count would put keys into the wrong partitions.
	c.Topic(testkit.Table, 3)
	c.Topic(output, 1)
	broken := NewProcessor(ProcessorOptions{Group: testGroup, Input: input, Table: true, Kafka: c.kafka, MaxBatch: 1,
		TickInterval: time.Second, ParkInterval: time.Second}, l.worker, testkit.Log())
	require.EqualError(t, broken.Ready(), "group group: not started")
	require.ErrorContains(t, broken.runOnce(testkit.Context(t)), "topic group-table has 3 partitions, its input has 1")
}
