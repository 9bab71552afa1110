package view

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/ops/audit"
	"kudos/reader/wire"
	"kudos/schema"
)

// The lag counts events of likes that the fold has not written to the state table.
func TestLag(t *testing.T) {
	t.Parallel()
	f := newFold(t, 10, 0)
	l := newLikes(t, f.kafka)
	requireLag := func(want int64) {
		testkit.WaitFor(t, fmt.Sprintf("a lag of %d", want), func() bool {
			events, _, _, known := l.Counts.Lag()
			return known && events == want
		})
	}
	requireLag(0)
	f.like(1, 3)
	requireLag(3)
	_, behind, _, _ := l.Counts.Lag()
	require.Positive(t, behind)
	f.transaction(1, 2)
	requireLag(1)
	f.transaction(1, 1)
	requireLag(0)
}

// The probe does not wait for a position that the recreated log does not have.
func TestLagAfterLikesWereRecreated(t *testing.T) {
	t.Parallel()
	f := newFold(t, 20, 0)
	l := newLikes(t, f.kafka)
	requireWaiting := func(want bool) {
		testkit.WaitFor(t, fmt.Sprintf("waiting to be %t", want), func() bool {
			l.Counts.lag.mu.Lock()
			defer l.Counts.lag.mu.Unlock()
			return (l.Counts.lag.mu.events > 0) == want && !l.Counts.lag.mu.waiting.IsZero() == want
		})
	}
	f.like(1, 3)
	requireWaiting(true)
	f.recreate(schema.TopicLikes)
	f.like(1, 1)
	f.transaction(1, 1)
	requireWaiting(false)
}

func TestStillWaitedFor(t *testing.T) {
	ends := []wire.Position{{Partition: 1, Offset: 10}, {Partition: 3, Offset: 30}}
	want := []wire.Position{ends[0], {Partition: 2, Offset: 5}, {Partition: 3, Offset: 7}, {Partition: 3, Offset: 31}}
	require.Equal(t, "1:10,3:7", wire.PositionsText(still(want, ends)), "partition 2 is complete, 3 ends before 31")
	require.Empty(t, still(nil, ends))
}

// While Kafka is unavailable, the view must not be reported as up to date.
func TestLagWhileUnknown(t *testing.T) {
	l := &lagProbe{}
	_, _, _, known := l.present()
	require.False(t, known)
	l.mu.last, l.mu.looked = time.Millisecond, time.Now()
	_, behind, _, known := l.present()
	require.True(t, known)
	require.Equal(t, time.Millisecond, behind)
	l.mu.looked = time.Now().Add(-time.Hour)
	_, behind, _, known = l.present()
	require.True(t, known)
	require.GreaterOrEqual(t, behind, time.Hour)
}

// The probe keeps waiting for what was not reached in time.
func TestAwaitKeepsMissingPartitions(t *testing.T) {
	l := &lagProbe{wait: func(_ context.Context, want wire.Position) error {
		if want.Partition == 2 {
			return context.DeadlineExceeded
		}
		return nil
	}}
	l.begin()
	want := []wire.Position{{Partition: 1, Offset: 1}, {Partition: 2, Offset: 2}, {Partition: 3, Offset: 3}}
	require.Equal(t, want[1:], l.await(t.Context(), want))
	require.False(t, l.mu.waiting.IsZero())
	require.Empty(t, l.await(t.Context(), want[2:]))
	require.True(t, l.mu.waiting.IsZero())
}

// Kafka is asked where likes ends. An event that exists is never reported as missing, however new it is.
func TestCheckEnds(t *testing.T) {
	t.Parallel()
	f := newFold(t, 31, 0)
	l := newLikes(t, f.kafka)
	at := func(partition int32, offset int64) []wire.Position {
		return []wire.Position{{Partition: partition, Offset: offset + 1}}
	}
	for offset := range int64(5) {
		require.EqualError(t, l.CheckEnds(t.Context(), at(1, offset)),
			(&BeyondEndError{Want: at(1, offset)[0], End: offset}).Error())
		f.like(1, 1)
		require.NoError(t, l.CheckEnds(t.Context(), at(1, offset)))
	}
	require.EqualError(t, l.CheckEnds(t.Context(), append(at(1, 4), at(0, 7)...)),
		"there is no event at partition 0, offset 7: that partition of the topic likes ends at 0")
	require.EqualError(t, l.CheckEnds(t.Context(), at(99, 7)),
		"partition 99 does not exist; the topic likes has 3, starting at 0")
	require.NoError(t, l.CheckEnds(testkit.Canceled(), at(1, 1<<40)))
}

// endsRig controls the queries: each signals listing when it starts, and gets its result from ends.
type endsRig struct {
	*logEnds
	t       *testing.T
	listing chan struct{}
	ends    chan int64 // of partition 1; below 0: Kafka fails
}

func newEndsRig(t *testing.T) *endsRig {
	r := &endsRig{logEnds: newLogEnds(), t: t, listing: make(chan struct{}), ends: make(chan int64)}
	start(t, func(ctx context.Context) error {
		return r.serve(ctx, func() (kadm.ListedOffsets, error) {
			select {
			case r.listing <- struct{}{}:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			end := <-r.ends
			if end < 0 {
				return nil, kerr.RequestTimedOut
			}
			return kadm.ListedOffsets{schema.TopicLikes: {1: {Topic: schema.TopicLikes, Partition: 1, Offset: end}}},
				nil
		})
	})
	return r
}

// told answers queries until a check has returned.
func (r *endsRig) told(by <-chan error, end int64) (looks int, is error) {
	for {
		select {
		case err := <-by:
			return looks, err
		case <-r.listing:
			looks++
			r.ends <- end
		}
	}
}

// ask checks in the background whether the event before an offset exists.
func (r *endsRig) ask(offset int64) <-chan error {
	told := make(chan error, 1)
	go func() { told <- r.check(r.t.Context(), []wire.Position{{Partition: 1, Offset: offset}}) }()
	return told
}

// A query that began before a caller came does not count for that caller: its event may be newer.
func TestEndOffsetsAreRequestedAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEndsRig(t)
		first := r.ask(11)
		<-r.listing // the log ends at 10 now
		found := make(chan int64, 1)
		go func() {
			end, _ := r.look(t.Context()).Lookup(schema.TopicLikes, 1)
			found <- end.Offset
		}()
		synctest.Wait() // until it waits for a query that has not begun
		r.ends <- 10
		_, err := r.told(first, 11) // the event has arrived meanwhile
		require.EqualValues(t, 11, <-found)
		require.NoError(t, err, "two queries must find that it is missing")
	})
}

// All callers share a query, and no answer from Kafka does not mean that the event is missing.
func TestEndOffsetsAreRequestedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEndsRig(t)
		busy := r.ask(1)
		<-r.listing
		told := make(chan error, 100)
		for range cap(told) {
			go func() { told <- r.check(t.Context(), []wire.Position{{Partition: 1, Offset: 100}}) }()
		}
		synctest.Wait() // until all wait for a query
		r.ends <- 10
		require.NoError(t, <-busy)
		looks := 0
		for range cap(told) {
			more, err := r.told(told, 10)
			looks += more
			var beyond *BeyondEndError
			require.ErrorAs(t, err, &beyond)
			require.EqualValues(t, 10, beyond.End)
		}
		require.Equal(t, endsLooks, looks, "queries are shared")

		_, err := r.told(r.ask(100), -1)
		require.NoError(t, err)
	})
}

func TestAskKafkaForOpenTransactionsAndTheLastAudit(t *testing.T) {
	t.Parallel()
	cluster, kafka := broker(t, schema.TopicState, schema.TopicCounts, schema.TopicLikes, schema.TopicTrending,
		schema.TopicUpdates)
	f := newFoldOn(t, cluster, kafka, 30, 3)
	l := newCopy(f.kafka, t.TempDir())
	var early wire.Health
	require.Nil(t, l.AskKafka(t.Context(), &early))
	require.Equal(t, []string{"the reader is starting"}, early.Errors)
	start(t, l.Run)
	testkit.WaitFor(t, "the client", func() bool { return l.client.Load() != nil })
	ask := func() (h wire.Health, likesEnd int64) {
		stable := l.AskKafka(t.Context(), &h)
		require.Empty(t, h.Errors)
		return h, stable[schema.TopicLikes][1].Offset
	}
	h, end := ask()
	require.Nil(t, h.Audit)
	require.Empty(t, h.Transactions)

	cl := f.cluster.Client(kgo.TransactionalID("open"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, cl.BeginTransaction())
	require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: schema.TopicLikes, Partition: 1}).FirstErr())
	h, stable := ask()
	require.Equal(t, end, stable)
	require.Equal(t, []wire.OpenTransaction{{Topic: schema.TopicLikes, End: end + 1,
		Position: wire.Position{Partition: 1, Offset: end}}}, h.Transactions)
	require.NoError(t, cl.EndTransaction(t.Context(), kgo.TryAbort))
	h, _ = ask()
	require.Empty(t, h.Transactions)

	report := audit.Report{Deep: true, Problems: []string{"one"}, Unknown: []string{"a", "b"}}
	require.NoError(t, report.Store(t.Context(), f.kafka, 3, testkit.Log()))
	h, _ = ask()
	require.WithinDuration(t, time.Now(), h.Audit.At, time.Minute)
	h.Audit.At = time.Time{}
	require.Equal(t, &schema.AuditResult{Deep: true, Differences: 1, NotCompared: 2, Exit: 3}, h.Audit)
}

// TestOpenTransactionsOfLikes: with how long they have been open, once they were seen twice in a row.
func TestOpenTransactionsOfLikes(t *testing.T) {
	t.Parallel()
	cluster, kafka := broker(t, schema.TopicLikes)
	l := &lagProbe{partitions: func() (int32, error) { return 0, nil }}
	look := func() []wire.OpenTransaction {
		_, err := l.look(t.Context(), cluster.Client())
		require.NoError(t, err, kafka)
		_, _, open, _ := l.present()
		return open
	}
	require.Empty(t, look())
	cl := cluster.Client(kgo.TransactionalID("open"))
	require.NoError(t, cl.BeginTransaction())
	require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: schema.TopicLikes, Partition: 1}).FirstErr())
	require.Zero(t, look()[0].OpenMs, "it may have begun just now")
	var open []wire.OpenTransaction
	testkit.WaitFor(t, "its age", func() bool { open = look(); return open[0].OpenMs > 0 })
	require.Len(t, open, 1)
	require.Equal(t, wire.OpenTransaction{Topic: schema.TopicLikes, Position: wire.Position{Partition: 1}, End: 1,
		OpenMs: open[0].OpenMs}, open[0])
	require.NoError(t, cl.EndTransaction(t.Context(), kgo.TryAbort))
	require.Empty(t, look())
}
