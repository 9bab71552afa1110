package stream

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/integration/testrun"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// holdFetches blocks the fetches of a topic at the broker until the test ends: they return neither records nor that the
// topic is gone. held gets an element for each of them. A fetch that is at the broker already waits for a record.
func (c *cluster) holdFetches(id [16]byte) (held <-chan struct{}) {
	came, freed := make(chan struct{}, 100), make(chan struct{})
	c.t.Cleanup(func() { close(freed) })
	c.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		for _, t := range kreq.(*kmsg.FetchRequest).Topics {
			if t.TopicID != id {
				return nil, nil, false
			}
		}
		// Of this topic, or of the topic that its fetch session had before: no other is fetched.
		came <- struct{}{}
		c.SleepControl(func() { <-freed })
		return nil, nil, false
	})
	return came
}

// A view detects that its topic was recreated even if nothing is written to it and its client notices nothing.
func TestViewNoticesARecreatedTopic(t *testing.T) {
	t.Parallel()
	c, v := viewOfOne(t)
	id := func() (id kafka.LogID) {
		_ = v.pinned(func(s *store.Store) { id = s.LogID() }) // not ready: no id
		return id
	}
	first := id()
	held := c.holdFetches(first.TopicID)
	c.put("a=2", "end=2")
	testkit.Receive(t, held, "the view must fetch") // the client's only fetch
	c.recreate()
	testkit.WaitFor(t, "the new log", func() bool {
		now := id()
		return now != first && now != kafka.LogID{}
	})
	v.requireValue("a", "", "the view of the new log has nothing from the old one")
}

func TestViewNoticesAddedPartitions(t *testing.T) {
	t.Parallel()
	c, v := viewOfOne(t)
	answer, err := kadm.NewClient(c.Client()).CreatePartitions(testkit.Context(t), 1, testkit.Table)
	require.NoError(t, err)
	require.NoError(t, answer.Error())
	v.waitPartitions(2)
	v.waitValue("a", "1")
}

// The topic is recreated after a session has looked it up and before its client has: records of the new log after the
// position in the old one do not reach the worker of the old log.
func TestFollowerOfATopicRecreatedWhileItOpens(t *testing.T) {
	t.Parallel()
	c, l := newCluster(t), newLab(t)
	c.Fill(testkit.Table, 1, 2)
	l.setPosition(0, kafka.Position{Offset: 2, Epoch: -1})
	var first kafka.LogID
	l.open = func(_ context.Context, w *fakeWorker) error {
		switch first {
		case kafka.LogID{}:
			first = w.a.Log
			c.recreate()
			c.Produce(testkit.Records(testkit.Table, 0, 10, 5)...)
		case w.a.Log:
		default:
			l.setPosition(0, kafka.Position{Offset: 0, Epoch: -1})
		}
		return nil
	}
	f := NewFollower(ProcessorOptions{Input: testkit.Table, Kafka: c.kafka, MaxBatch: 100, TickInterval: time.Second,
		ParkInterval: time.Second, ShutdownTimeout: testkit.Patience}, l.worker, nil, testkit.Log())
	testrun.Start(t, "the follower", testkit.Patience, f.Run)
	l.waitProcessed(0, offsets(0, 5))
}
