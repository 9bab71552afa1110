package stream

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/integration/refusal"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

func TestOffsetOutOfRangeParks(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 2, 10)
	require.NoError(t, c.DeleteRecords(input, 0, 6))
	var repaired atomic.Bool
	l.fence = func(_ context.Context, w *fakeWorker) error {
		if w.a.Partition == 0 && repaired.Load() {
			l.setPosition(0, kafka.Position{Offset: 6, Epoch: -1})
		}
		return nil
	}
	p, _ := c.run(l, func(o *ProcessorOptions) { o.LossAction = "accept the loss" })
	l.waitProcessed(1, offsets(0, 10))
	parked := p.waitNotReady(t, "parked") // until the next retry, which opens it again
	require.ErrorContains(t, parked, "input/0 parked: the position is not in the log any more: OFFSET_OUT_OF_RANGE")
	require.ErrorContains(t, parked, "action: accept the loss")
	fences := l.count(0, "Fence")
	testkit.WaitFor(t, "more retries", func() bool { return l.count(0, "Fence") >= fences+2 })
	require.Empty(t, l.processed(0))
	repaired.Store(true)
	l.waitProcessed(0, offsets(6, 10))
	p.waitReady(t)
}

// losingData makes the leader report, while the result is true, that every epoch ends at end.
func (c *cluster) losingData(end int64) *atomic.Bool {
	lost := &atomic.Bool{}
	c.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !lost.Load() {
			return nil, nil, false
		}
		return refusal.EpochEnd(req, end), nil, true
	})
	return lost
}

const dataWasLost = "data was lost by an unclean leader election"

// The leader epoch of the position is compared with the leader's when a partition opens, and at each retry.
func TestLostDataParks(t *testing.T) {
	t.Parallel()
	c, l := newInput(t, 2, 10)
	l.setPosition(0, kafka.Position{Offset: 8, Epoch: 0})
	lost := c.losingData(5)
	lost.Store(true)
	p, _ := c.run(l, nil)
	l.waitProcessed(1, offsets(0, 10))
	p.waitNotReady(t, dataWasLost)
	fences := l.count(0, "Fence")
	testkit.WaitFor(t, "retries while the data is still lost", func() bool { return l.count(0, "Fence") >= fences+3 })
	c.Produce(testkit.Records(input, 0, 10, 3)...)
	require.Empty(t, l.processed(0), "neither records after the loss nor newer ones")
	lost.Store(false)
	l.waitProcessed(0, offsets(8, 13))
}

// On a leader change, the client detects the loss. Its position is then the end of the remaining log, not the old one.
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
	p.waitNotReady(t, dataWasLost)
	c.Produce(testkit.Records(input, 0, 10, 3)...)
	require.Equal(t, offsets(0, 10), l.processed(0))
	lost.Store(false)
	l.waitProcessed(0, offsets(0, 13))
	require.NotContains(t, p.partition(0).Status().Reason, "arrived after", "no record was delivered twice")
}

// Regression: reading to the end of a log ended where the first fetch said that the log ends. The high watermark of a
// new leader may be behind, and a fetch does not tell.
func TestRegressRecoveryEndsAtListOffsets(t *testing.T) {
	t.Parallel()
	for name, shape := range testkit.StaleShapes {
		for at, upTo := range map[string]int64{"at the start": 0, "in the middle": 1} {
			t.Run(name+", stale "+at, func(t *testing.T) {
				c := newCluster(t)
				c.Topic(testkit.Table, 1)
				c.Produce(testkit.Record(testkit.Table, 0, "a", "1"))
				shape.Write(c.Cluster)
				end := c.PartitionInfo(testkit.Table, 0).LastStableOffset
				leader := c.StaleLeader(upTo, 2)
				s, err := c.catchUp(t.TempDir())
				require.NoError(t, err)
				require.Equal(t, shape.Want, content(t, s))
				offset, _ := s.Offset()
				require.Equal(t, end-1, offset, "the last stable offset is reached")

				leader.Answers.Store(2)
				var chunks []kafka.LogChunk
				require.NoError(t, kafka.ReadLog(testkit.Context(t), c.Client(), testkit.Table, 0, 0,
					func(chunk kafka.LogChunk) (bool, error) {
						chunks = append(chunks, chunk)
						return chunk.Next < chunk.End, nil
					}))
				require.Equal(t, end, chunks[0].End, "already in the first chunk")
				require.Equal(t, end, chunks[len(chunks)-1].Next)

				leader.Answers.Store(2)
				v := c.runView(t.TempDir())
				testkit.WaitFor(t, "the view", func() bool { return v.Ready() == nil })
				var have []string
				require.NoError(t, v.pinned(func(s *store.Store) { have = content(t, s) }))
				require.Equal(t, shape.Want, have, "once ready, it is complete")
			})
		}
	}
}

// A standby replica does not report that it has reached the end before it has.
func TestRegressStandbyEndsAtListOffsets(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Fill(testkit.Table, 1, 5)
	leader := c.StaleLeader(0, 1<<40)
	s, copies := c.standbyOf(t.TempDir())
	testkit.WaitFor(t, "more requests to the stale leader", func() bool { return leader.Answers.Load() < 1<<40-2 })
	require.Equal(t, []string{"opening"}, s.states())
	leader.Answers.Store(0)
	testkit.WaitFor(t, "the replica to follow", s.follows)
	offset, _ := copies.Get(testkit.Table, 0).Offset()
	require.EqualValues(t, 4, offset)
}
