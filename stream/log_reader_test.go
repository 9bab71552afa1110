package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const table = "group-table"

// catchUp opens the store of partition 0 below dir as goka's builder would, and
// brings it up to date.
func (c *cluster) catchUp(dir string) (*Store, error) {
	cl := c.client()
	defer cl.Close()
	tm := &topicManager{cl: cl, timeout: patience}
	id, err := tm.identify(table)
	require.NoError(c.t, err)
	s := openStore(c.t, dir, id)
	return s, s.CatchUp(testContext(c.t), cl, table, 0)
}

// contents returns all pairs of a store as "key=value".
func contents(t testing.TB, s *Store) []string {
	it, err := s.Iterator()
	require.NoError(t, err)
	defer it.Release()
	var all []string
	for it.Next() {
		v, err := it.Value()
		require.NoError(t, err)
		all = append(all, string(it.Key())+"="+string(v))
	}
	require.NoError(t, it.Err())
	return all
}

// logShapes are the ends that a state table's log can have. Reading up to the last
// data record, or waiting for the high watermark, goes wrong with some of them.
var logShapes = map[string]struct {
	write func(c *cluster)
	want  []string
}{
	"empty": {func(c *cluster) {}, nil},
	"plain records": {func(c *cluster) {
		c.produce(record(table, 0, "a", "1"), record(table, 0, "b", "1"), record(table, 0, "a", "2"))
	}, []string{"a=2", "b=1"}},
	"a deleted key": {func(c *cluster) {
		c.produce(record(table, 0, "a", "1"), record(table, 0, "b", "1"), &kgo.Record{Topic: table, Key: []byte("a")})
	}, []string{"b=1"}},
	"a commit marker at the end": {func(c *cluster) {
		c.transact("t", committed(), record(table, 0, "a", "1"))
		c.transact("t", committed(), record(table, 0, "b", "1"))
	}, []string{"a=1", "b=1"}},
	"an aborted transaction at the end": {func(c *cluster) {
		c.transact("t", committed(), record(table, 0, "a", "1"))
		c.transact("t", aborted(), record(table, 0, "a", "2"), record(table, 0, "b", "2"))
	}, []string{"a=1"}},
	"nothing but aborted ones": {func(c *cluster) {
		c.transact("t", aborted(), record(table, 0, "a", "2"))
		c.transact("t", aborted(), record(table, 0, "a", "3"))
	}, nil},
	"an open transaction at the end": {func(c *cluster) {
		c.transact("t", committed(), record(table, 0, "a", "1"))
		c.transact("u", nil, record(table, 0, "a", "2"))
	}, []string{"a=1"}},
	"committed behind an open one": {func(c *cluster) {
		c.transact("u", nil, record(table, 0, "a", "2"))
		c.transact("t", committed(), record(table, 0, "a", "1"))
	}, nil},
	"the head deleted": {func(c *cluster) {
		c.produce(records(table, 0, 0, 5)...)
		c.produce(record(table, 0, "z", "1"))
		require.NoError(c.t, c.DeleteRecords(table, 0, 5))
	}, []string{"z=1"}},
	"all deleted": {func(c *cluster) {
		c.transact("t", committed(), records(table, 0, 0, 5)...)
		require.NoError(c.t, c.DeleteRecords(table, 0, -1))
	}, nil},
}

func TestCatchUp(t *testing.T) {
	t.Parallel()
	for name, shape := range logShapes {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.topic(table, 1)
			shape.write(c)
			dir := t.TempDir()
			s, err := c.catchUp(dir)
			require.NoError(t, err)
			require.Equal(t, shape.want, contents(t, s))
			info := c.PartitionInfo(table, 0)
			if offset, ok := s.Offset(); info.LastStableOffset > info.LogStartOffset {
				require.True(t, ok)
				require.Equal(t, info.LastStableOffset-1, offset, "the store covers the log up to its last stable offset")
			}
			require.NoError(t, s.Close())

			// What comes later is read from there on.
			c.transact("u", committed(), record(table, 0, "later", "1"))
			s, err = c.catchUp(dir)
			require.NoError(t, err)
			require.Equal(t, "1", get(t, s, "later"))
		})
	}
}

func TestCatchUpReadsALargeTable(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.topic(table, 1)
	// Several fetches: 12 MB in batches that do not fit one.
	padding := strings.Repeat("x", 10_000)
	for round := range 3 {
		recs := records(table, 0, 400*round, 400)
		for _, r := range recs {
			r.Value = append(r.Value, padding...)
		}
		c.transact("t", committed(), recs...)
	}
	counts := c.countRequests()
	s, err := c.catchUp(t.TempDir())
	require.NoError(t, err)
	require.Len(t, contents(t, s), 1200)
	require.EqualValues(t, 1200, s.replayed.Load(), "what it read")
	offset, _ := s.Offset()
	require.Equal(t, c.end(table, 0)-1, offset)
	require.Less(t, counts.of(kmsg.Fetch), int64(50), "by fetches, not by records")
}

// TestCatchUpOfAStoreThatIsNoCopy: a store ahead of the log is not believed. (goka
// takes a local offset at or above the high watermark for "recovered".)
func TestCatchUpOfAStoreThatIsNoCopy(t *testing.T) {
	t.Parallel()
	for name, local := range map[string]int64{"ahead of the log": 100, "behind its start": 1} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.topic(table, 1)
			c.produce(records(table, 0, 0, 8)...)
			require.NoError(t, c.DeleteRecords(table, 0, 6))
			dir := t.TempDir()
			s := openStore(t, dir, LogID{ClusterID: "test-cluster", TopicID: c.TopicInfo(table).TopicID})
			put(t, s, local, "", "stale")
			require.NoError(t, s.Close())
			s, err := c.catchUp(dir)
			require.NoError(t, err)
			require.Equal(t, []string{"key-000006=value-6", "key-000007=value-7"}, contents(t, s))
		})
	}
}

// TestCatchUpOfACorruptedStore starts over, in the same session.
func TestCatchUpOfACorruptedStore(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.topic(table, 1)
	c.produce(records(table, 0, 0, 5000)...)
	dir := t.TempDir()
	s, err := c.catchUp(dir)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Open())
	damage(t, newest(t, s, "*.sst"))
	_, err = s.Get("key-004000")
	require.Error(t, err)
	require.NoError(t, s.CatchUp(testContext(t), c.client(), table, 0))
	require.Len(t, contents(t, s), 5000)
	put(t, s, c.end(table, 0)-1, "", "goes on")
}

func TestReadingATopicMadeAnewIsAnError(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.topic(table, 1)
	c.produce(records(table, 0, 0, 3)...)
	r := newLogReader(c.client(), table, 0, 0)
	_, err := r.fetch(testContext(t), 0)
	require.NoError(t, err)
	require.NoError(t, c.DeleteTopic(table))
	c.topic(table, 1)
	c.produce(records(table, 0, 0, 9)...)
	_, err = r.fetch(testContext(t), 3)
	require.ErrorIs(t, err, errRecreated)
	require.ErrorContains(t, err, table+"/0 at offset 3")
}

func TestReadingADeletedTopicSaysSo(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.topic(table, 1)
	r := newLogReader(c.client(), table, 0, 0)
	_, err := r.fetch(testContext(t), 0)
	require.NoError(t, err)
	require.NoError(t, c.DeleteTopic(table))
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err = r.fetch(ctx, 0)
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition, "the reason, and not that the time is over")
	var park *ParkError
	require.True(t, errors.As(err, &park), err)
	require.Equal(t, "kudos topics apply", park.Remedy)
}

func TestReadingIsRetried(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.UnknownTopicID, kerr.LeaderNotAvailable, kerr.KafkaStorageError} {
		t.Run(e.Message, func(t *testing.T) {
			c := newCluster(t)
			c.topic(table, 1)
			c.produce(records(table, 0, 0, 3)...)
			fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: table, Err: e})
			s, err := c.catchUp(t.TempDir())
			require.NoError(t, err)
			require.Len(t, contents(t, s), 3)
			require.Equal(t, 1, fault.Hits())
		})
	}
	t.Run("connection lost", func(t *testing.T) {
		c := newCluster(t)
		c.topic(table, 1)
		c.produce(records(table, 0, 0, 3)...)
		c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			return nil, errors.New("cut"), true // once
		})
		s, err := c.catchUp(t.TempDir())
		require.NoError(t, err)
		require.Len(t, contents(t, s), 3)
	})
	t.Run("final", func(t *testing.T) {
		c := newCluster(t)
		c.topic(table, 1)
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: table, Err: kerr.TopicAuthorizationFailed})
		_, err := c.catchUp(t.TempDir())
		require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
	})
}

func TestReadingFollowsTheLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(3))
	c.topic(table, 1)
	c.produce(records(table, 0, 0, 3)...)
	r := newLogReader(c.client(), table, 0, 0)
	for i := range int64(3) {
		require.NoError(t, c.MoveTopicPartition(table, 0, int32(i)))
		f, err := r.fetch(testContext(t), i)
		require.NoError(t, err, fmt.Sprintf("leader %d", i))
		require.Len(t, f.records, int(3-i))
		require.EqualValues(t, 3, f.next)
		require.EqualValues(t, i, r.leader)
	}
}

// TestReadLogSmall asks for less at a time, and reads the same.
func TestReadLogSmall(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.topic(table, 1)
	c.produce(records(table, 0, 0, 5)...)
	cl := c.client()
	for name, read := range map[string]struct {
		log  func(context.Context, kmsg.Requestor, string, int32, int64, func(LogChunk) (bool, error)) error
		asks int32
	}{"ReadLog": {ReadLog, fetchPartitionBytes}, "ReadLogSmall": {ReadLogSmall, groupPartitionBytes}} {
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
			require.NoError(t, read.log(testContext(t), cl, table, 0, 0, func(chunk LogChunk) (bool, error) {
				got += len(chunk.Records)
				return chunk.Next < chunk.End, nil
			}))
			require.Equal(t, 5, got)
			require.Equal(t, []int32{read.asks, read.asks}, <-asked)
		})
	}
}
