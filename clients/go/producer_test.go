package kudos

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestProducer(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(12, topicLikes))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	layout := Layout{12, map[uint64]int32{42: 16}}
	p, err := NewProducer(cluster.ListenAddrs(), layout.UserBuckets)
	if err != nil {
		t.Fatal(err)
	}
	sent := map[Position]Event{}
	for user := uint64(1); user <= 20; user++ {
		for _, post := range []uint64{42, 43, 1<<64 - 1} {
			e := Event{post, user, Like, time.UnixMilli(int64(user)), "DE"}
			at, err := p.Send(ctx, e)
			equal(t, err, nil)
			equal(t, at.Partition, Partition(post, user, layout))
			sent[at] = e
		}
	}
	equal(t, len(sent), 60)
	_, err = p.Send(ctx, Event{})
	equal(t, err != nil, true)
	ended, end := context.WithCancel(ctx)
	end()
	_, err = p.Send(ended, Event{42, 7, Like, time.Time{}, ""})
	equal(t, errors.Is(err, context.Canceled), true)
	equal(t, p.Close(ctx), nil)

	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics(topicLikes))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for len(sent) > 0 {
		fetches := cl.PollFetches(ctx)
		equal(t, fetches.Err(), nil)
		fetches.EachRecord(func(r *kgo.Record) {
			at := Position{r.Partition, r.Offset}
			key, value, err := Record(sent[at], layout)
			equal(t, err, nil)
			equal(t, string(r.Key), key)
			equal(t, r.Value, value)
			delete(sent, at)
		})
		if t.Failed() {
			return
		}
	}
}

// TestProducerStopsWithItsContext: a broker that is not there must not hold the caller.
func TestProducerStopsWithItsContext(t *testing.T) {
	p, err := NewProducer([]string{"127.0.0.1:1"}, nil)
	equal(t, err, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = p.Send(ctx, Event{PostID: 42, UserID: 7, Action: Like})
	equal(t, errors.Is(err, context.DeadlineExceeded), true)
	equal(t, p.Close(t.Context()), nil)
}
