package bulk

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/integration/refusal"
	"kudos/schema"
	"kudos/stream/kafka"
)

func broker(t *testing.T) (*testkit.Cluster, kafka.Options) {
	t.Helper()
	return apikit.Broker(t, 4, []string{schema.TopicLikes})
}

func connect(t *testing.T, kafka kafka.Options, layout schema.Layout) *Sender {
	t.Helper()
	s, err := Connect(t.Context(), kafka, layout, testkit.Log())
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// place is an event's position in likes.
type place struct {
	partition int32
	offset    int64
}

type answers struct {
	mu     sync.Mutex
	places map[uint64]place
	failed map[uint64]error
}

func (a *answers) of(user uint64) Answer {
	return func(rec *kgo.Record, err error) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if err != nil {
			a.failed[user] = err
			return err
		}
		a.places[user] = place{rec.Partition, rec.Offset}
		return nil
	}
}

func newAnswers() *answers { return &answers{places: map[uint64]place{}, failed: map[uint64]error{}} }

func TestResponsesNameTheOffset(t *testing.T) {
	_, kafka := broker(t)
	s, a := connect(t, kafka, schema.Layout{}), newAnswers()
	const events = 1000
	for user := uint64(1); user <= events; user++ {
		s.Send(&schema.Event{PostID: 1 + user%7, UserID: user, Action: schema.Like}, a.of(user))
	}
	require.NoError(t, s.Flush())
	require.NoError(t, s.Failure())
	require.Len(t, a.places, events)

	found := map[uint64]place{}
	for _, rec := range apikit.Likes(t, kafka) {
		e := apikit.Event(t, rec)
		require.Equal(t, schema.PartitionFor(e.PostID, 4), rec.Partition)
		found[e.UserID] = place{rec.Partition, rec.Offset}
	}
	require.Equal(t, found, a.places)
}

func TestNothingIsSentAfterTheFirstFailure(t *testing.T) {
	cluster, kafka := broker(t)
	cluster.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		return refusal.Produce(kreq, kerr.TopicAuthorizationFailed), nil, true // once: the next would be accepted
	})
	s, a := connect(t, kafka, schema.Layout{}), newAnswers()
	send := func(user uint64) {
		s.Send(&schema.Event{PostID: 1, UserID: user, Action: schema.Like}, a.of(user))
	}
	send(1)
	require.ErrorIs(t, s.Flush(), kerr.TopicAuthorizationFailed)
	send(2)
	require.ErrorIs(t, s.Flush(), kerr.TopicAuthorizationFailed, "the first failure must be kept")
	require.ErrorIs(t, s.Failure(), kerr.TopicAuthorizationFailed)
	require.Empty(t, a.places)
	require.Len(t, a.failed, 2)
	require.Empty(t, apikit.Likes(t, kafka))
}

// The key names the user's bucket, so that the event goes to its owning partition directly.
func TestKeysNameBuckets(t *testing.T) {
	_, kafka := broker(t)
	layout, err := schema.NewLayout(4, "7:64")
	require.NoError(t, err)
	s, a := connect(t, kafka, layout), newAnswers()
	for user := uint64(1); user <= 100; user++ {
		s.Send(&schema.Event{PostID: 7, UserID: user, Action: schema.Like}, a.of(user))
	}
	require.NoError(t, s.Flush())
	for user := uint64(1); user <= 100; user++ {
		require.Equal(t, layout.PartitionOf(7, user), a.places[user].partition)
	}
}

// TestFlushWaitsForEveryAnswer checks promises that kgo's Flush does not wait for: those of records that were never
// buffered, such as one that failed while it waited for a slot.
func TestFlushWaitsForEveryAnswer(t *testing.T) {
	_, kafka := broker(t)
	s := connect(t, kafka, schema.Layout{})
	s.client.Close()
	var err error
	s.client, err = kafka.NewClient(testkit.Log()) // without a topic, so it rejects at once
	require.NoError(t, err)
	asked, release := make(chan struct{}), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	t.Cleanup(letGo) // even if the test fails: Close waits for it
	var reason error
	s.Send(&schema.Event{PostID: 1, UserID: 1, Action: schema.Like}, func(_ *kgo.Record, err error) error {
		close(asked)
		<-release
		reason = err
		return err
	})
	<-asked
	flushed := testkit.Later(s.Flush)
	require.Eventually(t, func() bool { return len(flushed) > 0 || flushWaits(t) }, 10*time.Second, time.Millisecond)
	require.Empty(t, flushed, "Flush must wait for the missing answer")
	letGo()
	err = <-flushed
	require.Error(t, err)
	require.Equal(t, reason, err, "Flush must return the last record's failure")
}

func flushWaits(t *testing.T) bool {
	return slices.ContainsFunc(testkit.Goroutines(t, "bulk.(*Sender).Flush"), func(stack string) bool {
		return strings.Contains(stack, "sync.(*WaitGroup).Wait")
	})
}
