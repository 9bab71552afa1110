//go:build !nodev

package dev

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/testrun"
	"kudos/schema"
	"kudos/stream/kafka"
)

// compacting is a broker with topics of one partition, and a compactor that compacts
// whatever there is.
func compacting(t *testing.T) (*Broker, *Compactor) {
	t.Helper()
	b := startBroker(t)
	createTopics(t, b, 1)
	o := DefaultCompactorOptions()
	o.MinBytes, o.Topics = 1, map[string]time.Duration{schema.TopicState: 0}
	c := NewCompactor(o, b, kafkaOptions(b), discardLog())
	require.NoError(t, c.connect())
	t.Cleanup(func() { c.cl.Close() })
	return b, c
}

// set writes a table's records, "key=value" or "key" for a tombstone, in one transaction.
func set(t *testing.T, cl *kgo.Client, end kgo.TransactionEndTry, records ...[2]string) {
	t.Helper()
	require.NoError(t, cl.BeginTransaction())
	for _, kv := range records {
		r := &kgo.Record{Topic: schema.TopicState, Key: []byte(kv[0])}
		if kv[1] != "" {
			r.Value = []byte(kv[1])
		}
		require.NoError(t, cl.ProduceSync(t.Context(), r).FirstErr())
	}
	require.NoError(t, cl.EndTransaction(t.Context(), end))
}

// table is what a reader of the whole log comes to, and its last record's key.
func table(t *testing.T, cl *kgo.Client) (values map[string]string, last string) {
	t.Helper()
	start, _, err := kafka.Bounds(t.Context(), cl, schema.TopicState, 0)
	require.NoError(t, err)
	values = map[string]string{}
	require.NoError(t, kafka.ReadLog(t.Context(), cl, schema.TopicState, 0, start, func(c kafka.LogChunk) (bool, error) {
		for _, r := range c.Records {
			values[string(r.Key)], last = string(r.Value), string(r.Key)
			if r.Value == nil {
				delete(values, string(r.Key))
			}
		}
		return c.Next < c.End, nil
	}))
	return values, last
}

func logStart(t *testing.T, cl *kgo.Client) int64 {
	t.Helper()
	start, _, err := kafka.Bounds(t.Context(), cl, schema.TopicState, 0)
	require.NoError(t, err)
	return start
}

func TestCompactorKeepsTheTable(t *testing.T) {
	b, c := compacting(t)
	writer := transactional(t, b, "writer")
	set(t, writer, kgo.TryCommit, [2]string{"a", "1"}, [2]string{"b", "1"}, [2]string{"gone", "1"}, [2]string{"_", "1"})
	set(t, writer, kgo.TryAbort, [2]string{"a", "aborted"}, [2]string{"new", "aborted"})
	set(t, writer, kgo.TryCommit, [2]string{"a", "2"}, [2]string{"gone", ""}, [2]string{"_", "2"})
	before, _ := table(t, writer)
	require.Equal(t, map[string]string{"a": "2", "b": "1", "_": "2"}, before)
	end := b.cluster.PartitionInfo(schema.TopicState, 0).HighWatermark

	require.NoError(t, c.round(t.Context()))
	require.Zero(t, logStart(t, writer), "what was written again stays for those that are behind")
	after, last := table(t, writer)
	require.Equal(t, before, after)
	require.Equal(t, "_", last, "the log ends as it did")

	require.NoError(t, c.round(t.Context()))
	require.Equal(t, end, logStart(t, writer))
	after, last = table(t, writer)
	require.Equal(t, before, after)
	require.Equal(t, "_", last)
	set(t, writer, kgo.TryCommit, [2]string{"a", "3"}) // the writer was not fenced
}

// TestCompactorWaitsForTheOpenTransaction: what it writes must not come after what the
// transaction has written of the same key.
func TestCompactorWaitsForTheOpenTransaction(t *testing.T) {
	b, c := compacting(t)
	writer := transactional(t, b, "writer")
	set(t, writer, kgo.TryCommit, [2]string{"a", "1"}, [2]string{"b", "1"}, [2]string{"_", "1"})
	require.NoError(t, writer.BeginTransaction())
	newer := &kgo.Record{Topic: schema.TopicState, Key: []byte("a"), Value: []byte("2")}
	require.NoError(t, writer.ProduceSync(t.Context(), newer).FirstErr())

	c.options.HoldTimeout = 100 * time.Millisecond
	require.ErrorContains(t, c.round(t.Context()), "its transaction did not end within 100ms")
	require.Nil(t, b.held.Load(), "the partition is released")

	c.options.HoldTimeout = time.Minute
	done := make(chan error, 1)
	go func() { done <- c.round(t.Context()) }()
	require.Eventually(t, func() bool { return b.held.Load() != nil }, 10*time.Second, time.Millisecond)
	more := &kgo.Record{Topic: schema.TopicState, Key: []byte("b"), Value: []byte("2")} // of the open transaction
	require.NoError(t, writer.ProduceSync(t.Context(), more).FirstErr())
	require.NoError(t, writer.EndTransaction(t.Context(), kgo.TryCommit))
	require.NoError(t, <-done)
	values, _ := table(t, writer)
	require.Equal(t, map[string]string{"a": "2", "b": "2", "_": "1"}, values)
}

// TestHeldTransactionsBeginAfterRelease, in the order in which they were sent.
func TestHeldTransactionsBeginAfterRelease(t *testing.T) {
	b, _ := compacting(t)
	writer := transactional(t, b, "writer")
	set(t, writer, kgo.TryCommit, [2]string{"a", "1"})
	topic := b.cluster.TopicInfo(schema.TopicState)
	release := b.hold(schema.TopicState, topic.TopicID, 0)
	require.NoError(t, writer.BeginTransaction())
	promise := make(chan error, 1)
	waiting := &kgo.Record{Topic: schema.TopicState, Key: []byte("a"), Value: []byte("2")}
	writer.Produce(t.Context(), waiting, func(_ *kgo.Record, err error) { promise <- err })

	elsewhere := transactional(t, b, "elsewhere") // other partitions go on
	require.NoError(t, elsewhere.BeginTransaction())
	other := &kgo.Record{Topic: schema.TopicUpdates, Value: []byte("v")}
	require.NoError(t, elsewhere.ProduceSync(t.Context(), other).FirstErr())
	require.NoError(t, elsewhere.EndTransaction(t.Context(), kgo.TryCommit))
	require.Empty(t, promise)

	release()
	require.NoError(t, <-promise)
	require.NoError(t, writer.EndTransaction(t.Context(), kgo.TryCommit))
}

// TestCompactorAmongWriters compacts all the time while a table is written: whatever is
// read, at any time, is a state that the table has had, and the last one is the last.
func TestCompactorAmongWriters(t *testing.T) {
	b, c := compacting(t)
	c.options.Interval = time.Millisecond
	stop := testrun.Start(t, "the compactor", time.Minute, c.Run)
	writer := transactional(t, b, "writer")
	const rounds, keys = 150, 7
	want := map[string]string{}
	for i := range rounds {
		key, value := fmt.Sprint("k", i%keys), strconv.Itoa(i)
		set(t, writer, kgo.TryCommit, [2]string{key, value}, [2]string{"_", value})
		want[key], want["_"] = value, value
		if i%10 == 0 {
			have, _ := readWhole(t, writer)
			require.Equal(t, want, have, "after %d transactions", i+1)
		}
	}
	stop()
	require.Positive(t, logStart(t, writer), "it has compacted")
	have, last := table(t, writer)
	require.Equal(t, want, have)
	require.Equal(t, "_", last)
}

// readWhole is table, once more if the log's start has moved meanwhile.
func readWhole(t *testing.T, cl *kgo.Client) (values map[string]string, last string) {
	for {
		start := logStart(t, cl)
		values, last = map[string]string{}, ""
		err := kafka.ReadLog(context.Background(), cl, schema.TopicState, 0, start, func(c kafka.LogChunk) (bool, error) {
			for _, r := range c.Records {
				values[string(r.Key)], last = string(r.Value), string(r.Key)
			}
			return c.Next < c.End, nil
		})
		if err == nil {
			return values, last
		}
	}
}
