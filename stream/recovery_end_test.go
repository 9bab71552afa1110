package stream

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// TestRegressRecoveryEndsAtListOffsets: what reads to the end of a log ended where the first fetch
// said that it ends. The high watermark of a new leader may be behind, and a fetch does not tell.
func TestRegressRecoveryEndsAtListOffsets(t *testing.T) {
	t.Parallel()
	for name, shape := range testkit.StaleShapes {
		for at, upTo := range map[string]int64{"at the start": 0, "in between": 1} {
			t.Run(name+", stale "+at, func(t *testing.T) {
				c := newCluster(t)
				c.Topic(testkit.Table, 1)
				c.Produce(testkit.Record(testkit.Table, 0, "a", "1"))
				shape.Write(c.Cluster)
				end := c.PartitionInfo(testkit.Table, 0).LastStableOffset
				leader := c.StaleLeader(upTo, 2)
				s, err := c.catchUp(t.TempDir())
				require.NoError(t, err)
				require.Equal(t, shape.Want, testkit.Contents(t, s))
				offset, _ := s.Offset()
				require.Equal(t, end-1, offset, "the last stable offset is reached")

				leader.Answers.Store(2)
				var chunks []kafka.LogChunk
				require.NoError(t, kafka.ReadLog(testkit.Context(t), c.Client(), testkit.Table, 0, 0, func(chunk kafka.LogChunk) (bool, error) {
					chunks = append(chunks, chunk)
					return chunk.Next < chunk.End, nil
				}))
				require.Equal(t, end, chunks[0].End, "from the first chunk on")
				require.Equal(t, end, chunks[len(chunks)-1].Next)

				leader.Answers.Store(2)
				v := c.runView(t.TempDir())
				testkit.WaitFor(t, "the view", func() bool { return v.Ready() == nil })
				var have []string
				require.NoError(t, v.Read(0, func(s *store.Store, _ Copy) error { have = testkit.Contents(t, s); return nil }, nil))
				require.Equal(t, shape.Want, have, "when it is ready, all is there")
			})
		}
	}
}

// A standby copy is not shown as one that is at the end before it is.
func TestRegressStandbyEndsAtListOffsets(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Records(testkit.Table, 0, 0, 5)...)
	leader := c.StaleLeader(0, 1<<40)
	f := c.follow(t)
	testkit.WaitFor(t, "the stale leader to be asked again", func() bool { return leader.Answers.Load() < 1<<40-2 })
	state, behind := f.status()
	require.NotEqual(t, standbyFollowing, state)
	require.NotZero(t, behind)
	leader.Answers.Store(0)
	testkit.WaitFor(t, "the end", func() bool { state, behind := f.status(); return state == standbyFollowing && behind == 0 })
	offset, _ := f.store.Offset()
	require.EqualValues(t, 4, offset)
}

// follow keeps a standby copy of partition 0 of Table until the test's end.
func (c *cluster) follow(t *testing.T) *follower {
	stores := store.NewSet(t.TempDir(), 8<<20, testkit.Log())
	t.Cleanup(stores.Close)
	cl := c.Client()
	s := &standby{cl: cl, topic: testkit.Table, stores: stores.Standby(), identify: topicManager{cl: cl, timeout: testkit.Patience}.identify, log: testkit.Log(), turns: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	f := newFollower(s, 0)
	go f.run(nil)
	t.Cleanup(func() { s.cancel(); <-f.done })
	return f
}
