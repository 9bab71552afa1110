package view

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/reader/wire"
	"kudos/schema"
)

// Kafka is asked where likes ends: of an event that is there nobody says that it is not, however new it is.
func TestCheckEnds(t *testing.T) {
	t.Parallel()
	_, kafka := broker(t, schema.TopicState, schema.TopicLikes)
	l, _ := newLikes(t, kafka, t.TempDir(), true)
	cl, err := kafka.NewClient(discardLog(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(schema.TopicLikes))
	require.NoError(t, err)
	defer cl.Close()
	at := func(partition int32, offset int64) []wire.Position {
		return []wire.Position{{Partition: partition, Offset: offset + 1}}
	}
	for offset := range int64(5) {
		require.EqualError(t, l.CheckEnds(t.Context(), at(1, offset)),
			(&BeyondEndError{Want: at(1, offset)[0], End: offset}).Error())
		require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Partition: 1, Value: []byte("{}")}).FirstErr())
		require.NoError(t, l.CheckEnds(t.Context(), at(1, offset)))
	}
	require.EqualError(t, l.CheckEnds(t.Context(), append(at(1, 4), at(0, 7)...)),
		"no event is at partition 0, offset 7; the topic likes ends at 0 there")
	require.NoError(t, l.CheckEnds(t.Context(), at(99, 7)), "of a partition that is not there nobody can tell")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, l.CheckEnds(gone, at(1, 1<<40)))
}

// endsRig lists ends as the test says: each look is on listing when it begins, and gets its answer from ends.
type endsRig struct {
	*logEnds
	t       *testing.T
	listing chan struct{}
	ends    chan int64 // of partition 1; below 0: Kafka fails
}

func newEndsRig(t *testing.T) *endsRig {
	r := &endsRig{logEnds: newLogEnds(), t: t, listing: make(chan struct{}), ends: make(chan int64)}
	r.pause = 0
	r.list = func(ctx context.Context) (kadm.ListedOffsets, error) {
		select {
		case r.listing <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		end := <-r.ends
		if end < 0 {
			return nil, kerr.RequestTimedOut
		}
		return kadm.ListedOffsets{schema.TopicLikes: {1: {Topic: schema.TopicLikes, Partition: 1, Offset: end}}}, nil
	}
	start(t, r.serve)
	return r
}

// told answers looks until somebody is told what they asked for.
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

// ask has somebody check whether the event before an offset is there.
func (r *endsRig) ask(offset int64) <-chan error {
	told := make(chan error, 1)
	go func() { told <- r.check(r.t.Context(), []wire.Position{{Partition: 1, Offset: offset}}) }()
	return told
}

// A look that began before somebody came tells them nothing: their event is newer than that.
func TestEndsAreAskedAfterwards(t *testing.T) {
	r := newEndsRig(t)
	first := r.ask(11)
	<-r.listing // Kafka says now: the log ends at 10
	found := make(chan int64, 1)
	go func() {
		ends, _ := r.look(t.Context())
		end, _ := ends.Lookup(schema.TopicLikes, 1)
		found <- end.Offset
	}()
	r.waitsForNext()
	r.ends <- 10
	_, err := r.told(first, 11) // the event has come meanwhile
	require.EqualValues(t, 11, <-found)
	require.NoError(t, err, "two looks must find that it is not there")
}

// waitsForNext waits until somebody waits for a look that has not begun.
func (r *endsRig) waitsForNext() {
	require.Eventually(r.t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.mu.next != nil
	}, patience, time.Millisecond)
}

// All who wait share a look, and Kafka's silence is not the event's absence.
func TestEndsAreAskedOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEndsRig(t)
		busy := r.ask(1)
		<-r.listing
		told := make(chan error, 100)
		for range cap(told) {
			go func() { told <- r.check(t.Context(), []wire.Position{{Partition: 1, Offset: 100}}) }()
		}
		synctest.Wait() // until all wait for a look
		r.ends <- 10
		require.NoError(t, <-busy)
		looks := 0
		for range cap(told) {
			more, err := r.told(told, 10)
			looks += more
			var beyond *BeyondEndError
			require.True(t, errors.As(err, &beyond))
			require.EqualValues(t, 10, beyond.End)
		}
		require.Less(t, looks, cap(told)/2, "looks are shared")

		_, err := r.told(r.ask(100), -1)
		require.NoError(t, err)
	})
}
