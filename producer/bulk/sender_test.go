package bulk

import (
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/integration/refusal"
	"kudos/schema"
	"kudos/stream/kafka"
)

func broker(t *testing.T) (*kfake.Cluster, kafka.Options) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, schema.TopicLikes))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	kafka := kafka.DefaultOptions()
	kafka.Brokers = cluster.ListenAddrs()
	kafka.RequestTimeout = 5 * time.Second
	return cluster, kafka
}

func connect(t *testing.T, kafka kafka.Options) *Sender {
	t.Helper()
	s, err := Connect(t.Context(), kafka, schema.Layout{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// answers are what became of events, by their users.
type answers struct {
	mu     sync.Mutex
	places map[uint64]Place
	failed map[uint64]error
}

func (a *answers) of(user uint64) Answer {
	return func(at Place, err error) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if err != nil {
			a.failed[user] = err
			return err
		}
		a.places[user] = at
		return nil
	}
}

func newAnswers() *answers { return &answers{places: map[uint64]Place{}, failed: map[uint64]error{}} }

func TestAnswersNameTheEventsPlace(t *testing.T) {
	_, cluster := broker(t)
	s, a := connect(t, cluster), newAnswers()
	const events = 1000
	for user := uint64(1); user <= events; user++ {
		e := schema.Event{PostID: 1 + user%7, UserID: user, Action: schema.Like}
		s.Send(&e, a.of(user))
	}
	require.NoError(t, s.Flush())
	require.NoError(t, s.Failure())
	require.Len(t, a.places, events)

	cl, err := cluster.NewClient(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer cl.Close()
	found := map[uint64]Place{}
	for p := range int32(4) {
		from, to, err := kafka.Bounds(t.Context(), cl, schema.TopicLikes, p)
		require.NoError(t, err)
		if from == to {
			continue
		}
		require.NoError(t, kafka.ReadLog(t.Context(), cl, schema.TopicLikes, p, from, func(c kafka.LogChunk) (bool, error) {
			for _, rec := range c.Records {
				var e schema.Event
				require.NoError(t, schema.DecodeEvent(rec.Key, rec.Value, &e))
				require.Equal(t, schema.PartitionFor(e.PostID, 4), p)
				found[e.UserID] = Place{p, rec.Offset}
			}
			return c.Next < to, nil
		}))
	}
	require.Equal(t, found, a.places)
}

func TestNothingIsSentAfterTheFirstFailure(t *testing.T) {
	cluster, kafka := broker(t)
	cluster.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		return refusal.Produce(kreq, kerr.TopicAuthorizationFailed), nil, true // once: the next request would be taken
	})
	s, a := connect(t, kafka), newAnswers()
	send := func(user uint64) {
		e := schema.Event{PostID: 1, UserID: user, Action: schema.Like}
		s.Send(&e, a.of(user))
	}
	send(1)
	require.ErrorIs(t, s.Flush(), kerr.TopicAuthorizationFailed)
	send(2)
	require.ErrorIs(t, s.Flush(), kerr.TopicAuthorizationFailed, "the first failure stays")
	require.ErrorIs(t, s.Failure(), kerr.TopicAuthorizationFailed)
	require.Empty(t, a.places)
	require.Len(t, a.failed, 2)
	for _, p := range cluster.PartitionInfos(schema.TopicLikes) {
		require.Zero(t, p.HighWatermark, "partition %d", p.Partition)
	}
}

// The key names the user's bucket, so that the event comes to its home at once.
func TestKeysNameBuckets(t *testing.T) {
	_, kafka := broker(t)
	layout, err := schema.NewLayout(4, "7:64")
	require.NoError(t, err)
	s, err := Connect(t.Context(), kafka, layout, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(s.Close)
	a := newAnswers()
	for user := uint64(1); user <= 100; user++ {
		s.Send(&schema.Event{PostID: 7, UserID: user, Action: schema.Like}, a.of(user))
	}
	require.NoError(t, s.Flush())
	for user := uint64(1); user <= 100; user++ {
		require.Equal(t, layout.Home(7, user), a.places[user].Partition)
	}
}

// TestFlushWaitsForEveryAnswer: Kafka's client does not wait for the promise of a record that
// it has never buffered, as of one that failed while it waited for room.
func TestFlushWaitsForEveryAnswer(t *testing.T) {
	_, kafka := broker(t)
	s := connect(t, kafka)
	s.client.Close()
	var err error
	s.client, err = kafka.NewClient(slog.New(slog.DiscardHandler)) // knows no topic, so it refuses at once
	require.NoError(t, err)
	asked, release := make(chan struct{}), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	t.Cleanup(letGo) // whatever fails: Close waits for it
	var reason error
	s.Send(&schema.Event{PostID: 1, UserID: 1, Action: schema.Like}, func(_ Place, err error) error {
		close(asked)
		<-release
		reason = err
		return err
	})
	<-asked
	flushed := make(chan error, 1)
	go func() { flushed <- s.Flush() }()
	require.Eventually(t, func() bool { return len(flushed) > 0 || flushWaits() }, 10*time.Second, time.Millisecond)
	require.Empty(t, flushed, "an answer is missing")
	letGo()
	err = <-flushed
	require.Error(t, err)
	require.Equal(t, reason, err, "the failure of the last answer")
}

// flushWaits tells whether a Flush waits for answers.
func flushWaits() bool {
	buf := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "sync.(*WaitGroup).Wait") && strings.Contains(stack, "bulk.(*Sender).Flush") {
			return true
		}
	}
	return false
}
