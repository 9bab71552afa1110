package view

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/reader/wire"
	"kudos/schema"
)

// Nobody waits for a position that the log does not have any more.
func TestLagAfterLikesWereMadeAnew(t *testing.T) {
	t.Parallel()
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	f := newFold(t, kafka, 20)
	l, _ := newLikes(t, kafka, t.TempDir(), true)
	cl, err := kafka.NewClient(discardLog(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(schema.TopicLikes))
	require.NoError(t, err)
	defer cl.Close()
	produce := func(cl *kgo.Client, n int) {
		for range n {
			require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Partition: 1, Value: []byte("{}")}).FirstErr())
		}
	}
	produce(cl, 3)
	waiting := func() (is bool) {
		l.lag.mu.Lock()
		defer l.lag.mu.Unlock()
		return !l.lag.mu.waiting.IsZero() && l.lag.mu.events > 0
	}
	require.Eventually(t, waiting, patience, 10*time.Millisecond)

	adm := kadm.NewClient(cl)
	_, err = adm.DeleteTopic(t.Context(), schema.TopicLikes)
	require.NoError(t, err)
	_, err = adm.CreateTopic(t.Context(), partitions, 1, nil, schema.TopicLikes)
	require.NoError(t, err)
	another, err := kafka.NewClient(discardLog(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(schema.TopicLikes))
	require.NoError(t, err)
	defer another.Close()
	produce(another, 1)
	f.transaction(1, 1)
	require.Eventually(t, func() bool {
		events, _, _ := l.Lag()
		l.lag.mu.Lock()
		defer l.lag.mu.Unlock()
		return events == 0 && l.lag.mu.waiting.IsZero()
	}, patience, 10*time.Millisecond)
}

func TestStillWaitedFor(t *testing.T) {
	at := func(partition int32, offset int64) wire.Position {
		return wire.Position{Partition: partition, Offset: offset}
	}
	ends := []wire.Position{at(1, 10), at(3, 30)}
	require.Equal(t, []wire.Position{at(1, 10), at(3, 7)},
		still([]wire.Position{at(1, 10), at(2, 5), at(3, 7), at(3, 31)}, ends), "of 2 all has come, and 3 ends before 31")
	require.Empty(t, still(nil, ends))
}

// While Kafka is away nobody can say that the copy is up to date.
func TestLagWhileNobodyCanTell(t *testing.T) {
	l := &lagProbe{}
	_, _, known := l.present()
	require.False(t, known)
	l.mu.known, l.mu.last, l.mu.looked = true, time.Millisecond, time.Now()
	_, behind, known := l.present()
	require.True(t, known)
	require.Equal(t, time.Millisecond, behind)
	l.mu.looked = time.Now().Add(-time.Hour)
	_, behind, known = l.present()
	require.True(t, known)
	require.GreaterOrEqual(t, behind, time.Hour)
}

// What has not come in time is waited for further.
func TestAwaitKeepsWhatHasNotCome(t *testing.T) {
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
