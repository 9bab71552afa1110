//go:build !nodev

package dev

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/integration/testrun"
	"kudos/schema"
	"kudos/stream/kafka"
)

// compacting returns a broker with one-partition topics, a cleaner compacting the state table, and the table's writer.
func compacting(t *testing.T) (*Broker, *cleaner, *kgo.Client) {
	t.Helper()
	b, _ := startBroker(t, "", 1)
	c, err := newCleaner(b)
	require.NoError(t, err)
	t.Cleanup(func() { c.cl.Close() })
	c.minBytes, c.tables, c.trims = 1, map[string]time.Duration{schema.TopicState: 0}, nil
	return b, c, transactional(t, b, "writer")
}

func logStart(b *Broker, topic string) int64 { return b.cluster.PartitionInfo(topic, 0).LogStartOffset }

// table reads the state table from the whole log. The last record must be the progress record.
func table(t *testing.T, b *Broker) map[string]string {
	t.Helper()
	cl := newClient(t, b)
	defer cl.Close()
	for {
		start, last, values := logStart(b, schema.TopicState), "", map[string]string{}
		err := kafka.ReadLog(t.Context(), cl, schema.TopicState, 0, start, func(c kafka.LogChunk) (bool, error) {
			for _, r := range c.Records {
				values[string(r.Key)], last = string(r.Value), string(r.Key)
				if r.Value == nil {
					delete(values, string(r.Key))
				}
			}
			return c.Next < c.End, nil
		})
		if err == nil {
			require.Equal(t, "_", last, "the end of the log is unchanged")
			return values
		}
		require.Greater(t, logStart(b, schema.TopicState), start, "failed although the start was not deleted: %v", err)
	}
}

func TestCompactorKeepsTheTable(t *testing.T) {
	b, c, writer := compacting(t)
	transact(t, writer, kgo.TryCommit, "a=1", "b=1", "gone=1", "_=1")
	transact(t, writer, kgo.TryAbort, "a=aborted", "new=aborted")
	transact(t, writer, kgo.TryCommit, "a=2", "gone", "_=2")
	want := map[string]string{"a": "2", "b": "1", "_": "2"}
	require.Equal(t, want, table(t, b))
	end := b.cluster.PartitionInfo(schema.TopicState, 0).HighWatermark

	require.NoError(t, c.compactTables(t.Context()))
	require.Zero(t, logStart(b, schema.TopicState), "the originals stay for consumers that are behind")
	require.Equal(t, want, table(t, b))

	require.NoError(t, c.compactTables(t.Context()))
	require.Equal(t, end, logStart(b, schema.TopicState))
	require.Equal(t, want, table(t, b))
	transact(t, writer, kgo.TryCommit, "a=3") // the writer was not fenced
}

// TestCompactorWaitsForTheOpenTransaction: rewritten records must not follow the transaction's records of the same key.
func TestCompactorWaitsForTheOpenTransaction(t *testing.T) {
	b, c, writer := compacting(t)
	transact(t, writer, kgo.TryCommit, "a=1", "b=1", "c=1", "_=1")
	beginWith(t, writer, set("a=2"))

	c.holdTimeout = 100 * time.Millisecond
	require.ErrorContains(t, c.compactTables(t.Context()), "its transaction did not end within 100ms")
	require.Nil(t, b.held.Load(), "the partition is released")

	c.holdTimeout = time.Minute
	done := testkit.Later(func() error { return c.compactTables(t.Context()) })
	require.Eventually(t, func() bool { return b.held.Load() != nil }, patience, time.Millisecond)
	produce(t, writer, set("b=2"), set("_=2")) // in the open transaction
	require.NoError(t, writer.EndTransaction(t.Context(), kgo.TryCommit))
	require.NoError(t, <-done)
	require.Equal(t, map[string]string{"a": "2", "b": "2", "c": "1", "_": "2"}, table(t, b))
}

// TestHoldSeesWhatPassedBeforeIt: kfake answers for a partition while it decides whether a request must wait.
func TestHoldSeesWhatPassedBeforeIt(t *testing.T) {
	b, c, writer := compacting(t)
	transact(t, writer, kgo.TryCommit, "a=1")
	tp, end := topicPartition{schema.TopicState, b.cluster.TopicInfo(schema.TopicState).TopicID, 0}, make(chan int64, 1)
	b.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		t.Cleanup(b.hold(tp)) // the request has passed waitWhileHeld
		go func() { stable, _ := c.waitUntilStable(t.Context(), tp); end <- stable }()
		assert.Never(t, func() bool { return len(end) > 0 }, 20*time.Millisecond, time.Millisecond, "too early")
		return nil, nil, false
	})
	transact(t, writer, kgo.TryCommit, "a=2")
	require.Equal(t, b.cluster.PartitionInfo(schema.TopicState, 0).HighWatermark, <-end)
}

// TestHeldTransactionsBeginAfterRelease also checks that they begin in the order of their requests.
func TestHeldTransactionsBeginAfterRelease(t *testing.T) {
	b, _, writer := compacting(t)
	transact(t, writer, kgo.TryCommit, "a=1")
	id, done := b.cluster.TopicInfo(schema.TopicState).TopicID, make(chan error, 1)
	release := b.hold(topicPartition{schema.TopicState, id, 0})
	require.NoError(t, writer.BeginTransaction())
	writer.Produce(t.Context(), set("a=2"), func(_ *kgo.Record, err error) { done <- err })

	elsewhere := transactional(t, b, "elsewhere")
	for range 2 { // it must not begin under the next hold either
		beginWith(t, elsewhere, kgo.StringRecord("v")) // other partitions continue
		require.NoError(t, elsewhere.EndTransaction(t.Context(), kgo.TryCommit))
		require.Empty(t, done)
		last := b.held.Load()
		release = b.hold(last.topicPartition) // before that ends: between two holds it may begin
		close(last.released)
	}
	release()
	require.NoError(t, <-done)
	require.NoError(t, writer.EndTransaction(t.Context(), kgo.TryCommit))
}

// TestCompactorAmongWriters compacts continuously while a table is written: every read, at any time, returns a state
// that the table has had, and the last read returns the last state.
func TestCompactorAmongWriters(t *testing.T) {
	b, c, writer := compacting(t)
	stop := testrun.Start(t, "the cleaner", time.Minute, c.runEvery(time.Millisecond))
	const rounds, keys = 150, 7
	want := map[string]string{}
	for i := range rounds {
		key, value := fmt.Sprint("k", i%keys), strconv.Itoa(i)
		transact(t, writer, kgo.TryCommit, key+"="+value, "_="+value)
		want[key], want["_"] = value, value
		if i%10 == 0 {
			require.Equal(t, want, table(t, b), "after %d transactions", i+1)
		}
	}
	stop()
	require.Positive(t, logStart(b, schema.TopicState), "it has compacted")
	require.Equal(t, want, table(t, b))
}

func (c *cleaner) runEvery(interval time.Duration) func(context.Context) error {
	return func(ctx context.Context) error { c.run(ctx, interval); return nil }
}

// trimming returns a cleaner of a broker with ten likes in one partition, the first five of which are old. commit
// commits a group's offset; trim trims by a rule and returns the log start offset.
func trimming(t *testing.T) (c *cleaner, commit func(group string, offset int64), trim func(trimRule) int64) {
	b, _ := startBroker(t, "", 1)
	cl := newClient(t, b)
	for i := range 10 {
		r := &kgo.Record{Topic: schema.TopicLikes, Value: []byte("v"), Timestamp: time.Now()}
		if i < 5 {
			r.Timestamp = r.Timestamp.Add(-time.Hour)
		}
		produce(t, cl, r)
	}
	c, err := newCleaner(b)
	require.NoError(t, err)
	t.Cleanup(c.cl.Close)
	commit = func(group string, offset int64) {
		t.Helper()
		offsets := kadm.Offsets{}
		offsets.AddOffset(schema.TopicLikes, 0, offset, -1)
		require.NoError(t, kadm.NewClient(cl).CommitAllOffsets(t.Context(), group, offsets))
	}
	return c, commit, func(rule trimRule) int64 {
		t.Helper()
		c.trims = map[string]trimRule{schema.TopicLikes: rule, "not-there": rule}
		require.NoError(t, c.trim(t.Context(), time.Now()))
		return logStart(b, schema.TopicLikes)
	}
}

func TestTrimDeletesOldRecordsThatWereRead(t *testing.T) {
	_, commit, trim := trimming(t)
	rule := trimRule{readBy: []string{"first", "second"}, keep: 10 * time.Minute}
	require.Zero(t, trim(rule), "no group has read")
	commit("first", 4)
	require.Zero(t, trim(rule), "only one of two groups has read")
	commit("second", 3)
	require.EqualValues(t, 3, trim(rule), "the slower group counts")
	commit("first", 10)
	commit("second", 9)
	require.EqualValues(t, 5, trim(rule), "recent records stay")
	require.EqualValues(t, 5, trim(rule))
}

func TestTrimKeepsTheLastRecords(t *testing.T) {
	_, _, trim := trimming(t)
	for _, c := range []struct {
		age        time.Duration
		keep, want int64
	}{
		{2 * time.Hour, 1, 0}, // all are younger
		{time.Minute, 10, 0},  // there are only ten
		{time.Minute, 20, 0},  // nor twenty
		{time.Minute, 7, 3},   // all but the last seven
		{time.Minute, 1, 5},   // the old ones
		{time.Minute, 7, 5},   // deleted records do not return
		{-time.Minute, 2, 8},  // all are old
	} {
		got := trim(trimRule{keep: c.age, keepRecords: c.keep})
		require.Equal(t, c.want, got, "older than %s, except the last %d", c.age, c.keep)
	}
}

// TestCleanerTrims also checks that every rule names groups that must have read the records.
func TestCleanerTrims(t *testing.T) {
	c, commit, _ := trimming(t)
	for topic, rule := range c.trims {
		require.NotEmpty(t, rule.readBy, topic)
	}
	commit(schema.GroupFold, 10)
	c.trims = map[string]trimRule{schema.TopicLikes: {readBy: []string{schema.GroupFold}}}
	testrun.Start(t, "the cleaner", patience, c.runEvery(20*time.Millisecond))
	done := func() bool { return logStart(c.broker, schema.TopicLikes) == 10 }
	require.Eventually(t, done, patience, 5*time.Millisecond)
}
