package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
)

func TestReadingARecreatedTopicFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Fill(testkit.Table, 1, 3)
	r := NewLogReader(c.Client(), testkit.Table, 0)
	_, err := r.Fetch(testkit.Context(t), 0)
	require.NoError(t, err)
	require.NoError(t, c.DeleteTopic(testkit.Table))
	c.Fill(testkit.Table, 1, 9)
	_, err = r.Fetch(testkit.Context(t), 3)
	require.ErrorIs(t, err, ErrRecreated)
	require.ErrorContains(t, err, testkit.Table+"/0 at offset 3")
}

func TestReadingADeletedTopicSaysSo(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	r := NewLogReader(c.Client(), testkit.Table, 0)
	_, err := r.Fetch(testkit.Context(t), 0)
	require.NoError(t, err)
	require.NoError(t, c.DeleteTopic(testkit.Table))
	_, err = r.Fetch(testkit.Within(t, 3*time.Second), 0)
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition, "the cause, not the timeout")
	var setup *SetupError
	require.ErrorAs(t, err, &setup)
	require.Equal(t, "kudos topics apply", setup.Action)
}

func TestReadingFollowsTheLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(3))
	c.Fill(testkit.Table, 1, 3)
	r := NewLogReader(c.Client(), testkit.Table, 0)
	for i := range int64(3) {
		require.NoError(t, c.MoveTopicPartition(testkit.Table, 0, int32(i)))
		f, err := r.Fetch(testkit.Context(t), i)
		require.NoError(t, err, fmt.Sprintf("leader %d", i))
		require.Len(t, f.Records, int(3-i))
		require.EqualValues(t, 3, f.Next)
		require.EqualValues(t, i, r.leader)
	}
}

func TestReadLogSmall(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Fill(testkit.Table, 1, 5)
	cl := c.Client()
	for name, read := range map[string]struct {
		log  func(context.Context, kmsg.Requestor, string, int32, int64, func(LogChunk) (bool, error)) error
		asks int32
	}{"ReadLog": {ReadLog, fetchBytes}, "ReadLogSmall": {ReadLogSmall, smallFetchBytes}} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan []int32, 1)
			c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
				f := r.(*kmsg.FetchRequest)
				select {
				case asked <- []int32{f.MaxBytes, f.Topics[0].Partitions[0].PartitionMaxBytes}:
				default:
				}
				return nil, nil, false
			})
			got := 0
			require.NoError(t, read.log(testkit.Context(t), cl, testkit.Table, 0, 0,
				func(chunk LogChunk) (bool, error) {
					got += len(chunk.Records)
					return chunk.Next < chunk.End, nil
				}))
			require.Equal(t, 5, got)
			require.Equal(t, []int32{read.asks, read.asks}, <-asked)
		})
	}
}

// The end is requested again while the leader does not know it yet, or another broker leads.
func TestEndOffsetIsRequestedAgain(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.OffsetNotAvailable, kerr.NotLeaderForPartition, kerr.LeaderNotAvailable} {
		t.Run(e.Message, func(t *testing.T) {
			c := newCluster(t)
			c.Fill(testkit.Table, 1, 3)
			fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: testkit.Table, Err: e, Count: 2})
			f, err := NewLogReader(c.Client(), testkit.Table, 0).Fetch(testkit.Context(t), 0)
			require.NoError(t, err)
			require.Len(t, f.Records, 3)
			require.Equal(t, 2, fault.Hits())

			fault = c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: testkit.Table, Err: e, Count: 2})
			_, end, err := Bounds(testkit.Context(t), c.Client(), testkit.Table, 0)
			require.NoError(t, err, "used by goka's recovery and by checks of a position against the log")
			require.EqualValues(t, 3, end)
			require.Equal(t, 2, fault.Hits())
		})
	}
}

func TestEndOffsetIsRequestedOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	for range 5 {
		c.Produce(testkit.Records(testkit.Table, 0, 0, 1)...)
	}
	counts := c.CountRequests()
	r := NewLogReader(c.Client(), testkit.Table, 0)
	r.fetchBytes = 1 // a batch at a time
	for next := int64(0); next < 5; {
		f, err := r.Fetch(testkit.Context(t), next)
		require.NoError(t, err)
		require.Equal(t, next+1, f.Next)
		next = f.Next
	}
	require.EqualValues(t, 1, counts.Of(kmsg.ListOffsets))
}

// A fetch does not wait forever for records that were truncated meanwhile.
func TestEndThatIsNotReached(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Fill(testkit.Table, 1, 3)
	c.StaleLeader(0, 1<<40)
	ctx := testkit.Within(t, 3*time.Second) // at least one attempt fails by then
	_, err := NewLogReader(c.Client(), testkit.Table, 0).Fetch(ctx, 0)
	require.ErrorContains(t, err, "reading "+testkit.Table+
		"/0 at offset 0: the leader returned nothing, but the log ended at offset 3")
}

// answerOffsetFetches answers the next OffsetFetch requests with errors, for the group or partition; later ones pass.
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

// "None" only if Kafka says so: a partition starts from nothing then; a late or failed response must not look like it.
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
	none(0, "the group has never committed")
	var offsets kadm.Offsets
	offsets.AddOffset(input, 0, 7, -1)
	require.NoError(t, kadm.NewClient(cl).CommitAllOffsets(testkit.Context(t), testGroup, offsets))
	none(1, "the group has committed another partition")
	seven("committed")

	c.answerOffsetFetches(true, kerr.UnstableOffsetCommit, kerr.UnstableOffsetCommit)
	seven("waits for a transaction to end")
	c.answerOffsetFetches(false, kerr.CoordinatorLoadInProgress)
	seven("waits for the coordinator to load")
	for _, ofPartition := range []bool{true, false} {
		c.answerOffsetFetches(ofPartition, kerr.GroupAuthorizationFailed)
		_, ok, err := look(0)
		require.ErrorIs(t, err, kerr.GroupAuthorizationFailed)
		require.ErrorContains(t, err, "committed offset of group "+testGroup+" in "+input+"/0")
		require.False(t, ok)
	}
	seven("earlier errors have no effect")
}
