package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
)

// answerOffsetFetches answers the next of them with these errors in turn, of the group or of
// its partition, and the others as they come.
func (c *cluster) answerOffsetFetches(ofPartition bool, errs ...*kerr.Error) {
	for _, err := range errs {
		c.ControlKey(int16(kmsg.OffsetFetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			req := kreq.(*kmsg.OffsetFetchRequest)
			resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
			g := kmsg.NewOffsetFetchResponseGroup()
			g.Group = req.Groups[0].Group
			if !ofPartition {
				g.ErrorCode = err.Code
			} else {
				t := kmsg.NewOffsetFetchResponseGroupTopic()
				t.Topic, t.TopicID = req.Groups[0].Topics[0].Topic, req.Groups[0].Topics[0].TopicID
				p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
				p.Partition, p.Offset, p.ErrorCode = req.Groups[0].Topics[0].Partitions[0], -1, err.Code
				t.Partitions = append(t.Partitions, p)
				g.Topics = append(g.Topics, t)
			}
			resp.Groups = append(resp.Groups, g)
			return resp, nil, true
		})
	}
}

// That there is no committed offset is said only where Kafka says so. A partition is begun
// from nothing then, so an answer that is late or refused must not read like it.
func TestCommittedOffset(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(input, 2)
	c.Produce(testkit.Records(input, 0, 0, 10)...)
	cl := c.Client()
	look := func(partition int32) (int64, bool, error) {
		return CommittedOffset(testkit.Context(t), cl, testGroup, input, partition)
	}
	none := func(partition int32, why string) {
		t.Helper()
		_, ok, err := look(partition)
		require.NoError(t, err, why)
		require.False(t, ok, why)
	}
	seven := func(why string) {
		t.Helper()
		offset, ok, err := look(0)
		require.NoError(t, err, why)
		require.True(t, ok, why)
		require.EqualValues(t, 7, offset, why)
	}
	none(0, "nobody has ever committed for the group")
	var offsets kadm.Offsets
	offsets.AddOffset(input, 0, 7, -1)
	require.NoError(t, kadm.NewClient(cl).CommitAllOffsets(testkit.Context(t), testGroup, offsets))
	none(1, "the group has committed elsewhere")
	seven("committed")

	c.answerOffsetFetches(true, kerr.UnstableOffsetCommit, kerr.UnstableOffsetCommit)
	seven("a transaction that ends is waited for")
	c.answerOffsetFetches(false, kerr.CoordinatorLoadInProgress)
	seven("a coordinator that comes is waited for")
	for _, ofPartition := range []bool{true, false} {
		c.answerOffsetFetches(ofPartition, kerr.GroupAuthorizationFailed)
		_, ok, err := look(0)
		require.ErrorIs(t, err, kerr.GroupAuthorizationFailed)
		require.ErrorContains(t, err, "committed offset of group "+testGroup+" in "+input+"/0")
		require.False(t, ok)
	}
	seven("nothing was left of the refusals")
}
