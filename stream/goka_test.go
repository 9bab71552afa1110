package stream

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
)

func TestTopicManager(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic("three", 3)
	tm := topicManager{cl: c.Client(), timeout: testkit.Patience}
	partitions, err := tm.Partitions("three")
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 2}, partitions)
	require.NoError(t, tm.EnsureTableExists("three", 3))
	require.ErrorContains(t, tm.EnsureStreamExists("three", 4), "topic three has 3 partitions, its input has 4")
	err = tm.EnsureTopicExists("none", 3, 1, nil)
	require.True(t, parks(err), err)
	require.Nil(t, c.TopicInfo("none"), "it verifies and never creates")

	for _, at := range []int64{sarama.OffsetOldest, sarama.OffsetNewest} {
		offset, err := tm.GetOffset("three", 1, at)
		require.NoError(t, err)
		require.Zero(t, offset, "goka has nothing to recover")
	}
}
