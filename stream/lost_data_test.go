package stream

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/stream/kafka"
)

func TestOffsetOutOfRangeParks(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(input, 2)
	c.Produce(append(testkit.Records(input, 0, 0, 10), testkit.Records(input, 1, 0, 10)...)...)
	require.NoError(t, c.DeleteRecords(input, 0, 6))
	l := newLab(t)
	var mended atomic.Bool
	l.fence = func(_ context.Context, w *fakeWorker) error {
		if w.a.Partition == 0 && mended.Load() {
			l.setPosition(0, kafka.Position{Offset: 6, Epoch: -1})
		}
		return nil
	}
	p, _ := c.run(l, func(o *ProcessorOptions) { o.LossRemedy = "accept the loss" })
	l.waitProcessed(1, offsets(0, 10))
	var parked error // until the next look, after which it is opened once more
	testkit.WaitFor(t, "the park", func() bool { parked = p.Ready(); return parked != nil && strings.Contains(parked.Error(), "parked") })
	require.ErrorContains(t, parked, "input/0 parked: the position is not in the log any more: OFFSET_OUT_OF_RANGE")
	require.ErrorContains(t, parked, "remedy: accept the loss")
	fences := l.count(0, "Fence")
	testkit.WaitFor(t, "another look", func() bool { return l.count(0, "Fence") >= fences+2 })
	require.Empty(t, l.processed(0))
	mended.Store(true)
	l.waitProcessed(0, offsets(6, 10))
	testkit.WaitFor(t, "readiness", func() bool { return p.Ready() == nil })
}

// losingData has the leader say, while the result is true, that what was read of an
// epoch up to end is all that there is of it.
func (c *cluster) losingData(end int64) *atomic.Bool {
	lost := &atomic.Bool{}
	c.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !lost.Load() {
			return nil, nil, false
		}
		r := req.(*kmsg.OffsetForLeaderEpochRequest)
		resp := r.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, topic := range r.Topics {
			rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
			rt.Topic = topic.Topic
			for _, part := range topic.Partitions {
				rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				rp.Partition, rp.LeaderEpoch, rp.EndOffset = part.Partition, part.LeaderEpoch, end
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	return lost
}

func waitLost(t *testing.T, p *Processor) {
	t.Helper()
	testkit.WaitFor(t, "the park", func() bool {
		err := p.Ready()
		return err != nil && strings.Contains(err.Error(), "data was lost by an unclean leader election")
	})
}

// TestLostDataParks: the leader epoch of the position is held against the leader's
// when a partition is opened, and whenever it is looked at.
func TestLostDataParks(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(input, 2)
	c.Produce(append(testkit.Records(input, 0, 0, 10), testkit.Records(input, 1, 0, 10)...)...)
	l := newLab(t)
	l.setPosition(0, kafka.Position{Offset: 8, Epoch: 0})
	lost := c.losingData(5)
	lost.Store(true)
	p, _ := c.run(l, nil)
	l.waitProcessed(1, offsets(0, 10))
	waitLost(t, p)
	fences := l.count(0, "Fence")
	testkit.WaitFor(t, "looks that find it lost still", func() bool { return l.count(0, "Fence") >= fences+3 })
	c.Produce(testkit.Records(input, 0, 10, 3)...)
	require.Empty(t, l.processed(0), "neither what is behind the loss nor what came later")
	lost.Store(false)
	l.waitProcessed(0, offsets(8, 13))
}

// TestDataLostWhileConsuming: the client notices at a change of the leader, and stands
// at the end of the loss then, not where it believes itself to be.
func TestDataLostWhileConsuming(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(3))
	c.Topic(input, 1)
	require.NoError(t, c.MoveTopicPartition(input, 0, 0))
	c.Produce(testkit.Records(input, 0, 0, 10)...)
	l := newLab(t)
	p, _ := c.run(l, nil)
	l.waitProcessed(0, offsets(0, 10))
	require.Equal(t, kafka.Position{Offset: 10, Epoch: c.PartitionInfo(input, 0).Epoch}, l.position(0))
	lost := c.losingData(5)
	lost.Store(true)
	require.NoError(t, c.MoveTopicPartition(input, 0, 1))
	waitLost(t, p)
	c.Produce(testkit.Records(input, 0, 10, 3)...)
	require.Equal(t, offsets(0, 10), l.processed(0))
	lost.Store(false)
	l.waitProcessed(0, offsets(0, 13))
	require.NotContains(t, p.partition(0).Status().Reason, "came after", "nothing was offered twice")
}
