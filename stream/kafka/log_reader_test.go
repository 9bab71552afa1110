package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
)

func TestReadingATopicMadeAnewIsAnError(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Records(testkit.Table, 0, 0, 3)...)
	r := NewLogReader(c.Client(), testkit.Table, 0, 0)
	_, err := r.Fetch(testkit.Context(t), 0)
	require.NoError(t, err)
	require.NoError(t, c.DeleteTopic(testkit.Table))
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Records(testkit.Table, 0, 0, 9)...)
	_, err = r.Fetch(testkit.Context(t), 3)
	require.ErrorIs(t, err, ErrRecreated)
	require.ErrorContains(t, err, testkit.Table+"/0 at offset 3")
}

func TestReadingADeletedTopicSaysSo(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	r := NewLogReader(c.Client(), testkit.Table, 0, 0)
	_, err := r.Fetch(testkit.Context(t), 0)
	require.NoError(t, err)
	require.NoError(t, c.DeleteTopic(testkit.Table))
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err = r.Fetch(ctx, 0)
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition, "the reason, and not that the time is over")
	var setup *SetupError
	require.ErrorAs(t, err, &setup)
	require.Equal(t, "kudos topics apply", setup.Remedy)
}

func TestReadingFollowsTheLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(3))
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Records(testkit.Table, 0, 0, 3)...)
	r := NewLogReader(c.Client(), testkit.Table, 0, 0)
	for i := range int64(3) {
		require.NoError(t, c.MoveTopicPartition(testkit.Table, 0, int32(i)))
		f, err := r.Fetch(testkit.Context(t), i)
		require.NoError(t, err, fmt.Sprintf("leader %d", i))
		require.Len(t, f.Records, int(3-i))
		require.EqualValues(t, 3, f.Next)
		require.EqualValues(t, i, r.leader)
	}
}

// TestReadLogSmall asks for less at a time, and reads the same.
func TestReadLogSmall(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Records(testkit.Table, 0, 0, 5)...)
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
			require.NoError(t, read.log(testkit.Context(t), cl, testkit.Table, 0, 0, func(chunk LogChunk) (bool, error) {
				got += len(chunk.Records)
				return chunk.Next < chunk.End, nil
			}))
			require.Equal(t, 5, got)
			require.Equal(t, []int32{read.asks, read.asks}, <-asked)
		})
	}
}

// TestEndIsAskedAgain while the leader does not know it yet, or another one leads.
func TestEndIsAskedAgain(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.OffsetNotAvailable, kerr.NotLeaderForPartition, kerr.LeaderNotAvailable} {
		t.Run(e.Message, func(t *testing.T) {
			c := newCluster(t)
			c.Topic(testkit.Table, 1)
			c.Produce(testkit.Records(testkit.Table, 0, 0, 3)...)
			fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: testkit.Table, Err: e, Count: 2})
			r := NewLogReader(c.Client(), testkit.Table, 0, 0)
			f, err := r.Fetch(testkit.Context(t), 0)
			require.NoError(t, err)
			require.Len(t, f.Records, 3)
			require.Equal(t, 2, fault.Hits())

			fault = c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: testkit.Table, Err: e, Count: 2})
			_, end, err := Bounds(testkit.Context(t), c.Client(), testkit.Table, 0)
			require.NoError(t, err, "goka's recovery and what compares a position with the log")
			require.EqualValues(t, 3, end)
			require.Equal(t, 2, fault.Hits())
		})
	}
}

// TestEndIsAskedOnce, and not with each fetch.
func TestEndIsAskedOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	for range 5 {
		c.Produce(testkit.Records(testkit.Table, 0, 0, 1)...)
	}
	counts := c.CountRequests()
	r := NewLogReader(c.Client(), testkit.Table, 0, 0)
	r.FetchBytes = 1 // a batch at a time
	for next := int64(0); next < 5; {
		f, err := r.Fetch(testkit.Context(t), next)
		require.NoError(t, err)
		require.Equal(t, next+1, f.Next)
		next = f.Next
	}
	require.EqualValues(t, 1, counts.Of(kmsg.ListOffsets))
}

// TestEndThatIsNotReached: what was cut off meanwhile is not waited for without an end.
func TestEndThatIsNotReached(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Records(testkit.Table, 0, 0, 3)...)
	c.StaleLeader(0, 1<<40)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second) // one try at least fails by then
	defer cancel()
	_, err := NewLogReader(c.Client(), testkit.Table, 0, 0).Fetch(ctx, 0)
	require.ErrorContains(t, err, "reading "+testkit.Table+"/0 at offset 0: the leader has nothing from there on, but the log ended at offset 3")
}
