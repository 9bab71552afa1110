package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/integration/refusal"
	"kudos/stream/kafka"
)

func catchUp(t testing.TB, c *testkit.Cluster, dir string) *Store {
	s, err := tryCatchUp(t, c, dir)
	require.NoError(t, err)
	return s
}

func tryCatchUp(t testing.TB, c *testkit.Cluster, dir string) (*Store, error) {
	cl := c.Client()
	defer cl.Close()
	stores := NewSet(dir, 64<<20, testkit.Log())
	t.Cleanup(stores.Close)
	s := stores.New(testkit.Table, 0)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err := s.CatchUp(testkit.Context(t), cl, Hooks{})
	return s, err
}

func TestCatchUp(t *testing.T) {
	t.Parallel()
	for name, shape := range testkit.LogShapes {
		t.Run(name, func(t *testing.T) {
			c := testkit.NewCluster(t)
			c.Topic(testkit.Table, 1)
			shape.Write(c)
			dir := t.TempDir()
			s := catchUp(t, c, dir)
			require.Equal(t, shape.Want, contents(t, s))
			info := c.PartitionInfo(testkit.Table, 0)
			if info.LastStableOffset > info.LogStartOffset {
				requireOffset(t, s, info.LastStableOffset-1, "the store covers the log up to its last stable offset")
			}
			require.NoError(t, s.Close())

			// Later records are read from there on.
			c.Transact("u", testkit.Commit(), testkit.Record(testkit.Table, 0, "later", "1"))
			s = catchUp(t, c, dir)
			require.Equal(t, "1", get(t, s, "later"))
		})
	}
}

func TestCatchUpReadsALargeTable(t *testing.T) {
	t.Parallel()
	c := testkit.NewCluster(t)
	c.Topic(testkit.Table, 1)
	// Several fetches: 12 MB in batches that do not fit one.
	padding := strings.Repeat("x", 10_000)
	for round := range 3 {
		recs := testkit.Records(testkit.Table, 0, 400*round, 400)
		for _, r := range recs {
			r.Value = append(r.Value, padding...)
		}
		c.Transact("t", testkit.Commit(), recs...)
	}
	counts := c.CountRequests()
	s := catchUp(t, c, t.TempDir())
	require.Len(t, contents(t, s), 1200)
	require.EqualValues(t, 1200, s.replayed.Load(), "records read")
	requireOffset(t, s, c.End(testkit.Table, 0)-1)
	require.Less(t, counts.Of(kmsg.Fetch), int64(50), "it fetches in batches")
}

// A store ahead of its log, or behind its start, is rebuilt. (goka takes one ahead of the high watermark as recovered.)
func TestCatchUpOfAnUnrelatedStore(t *testing.T) {
	t.Parallel()
	for name, local := range map[string]int64{"ahead of the log": 100, "before the start of the log": 1} {
		t.Run(name, func(t *testing.T) {
			c := testkit.NewCluster(t)
			c.Fill(testkit.Table, 1, 8)
			require.NoError(t, c.DeleteRecords(testkit.Table, 0, 6))
			dir := t.TempDir()
			s := catchUp(t, c, dir)
			put(t, s, local, "", "stale")
			require.NoError(t, s.Close())
			s = catchUp(t, c, dir)
			require.Equal(t, []string{"key-000006=value-6", "key-000007=value-7"}, contents(t, s))
		})
	}
}

// A log that was truncated below the store is noticed after it has grown beyond it again, if the leader epoch is known.
func TestCatchUpOfALogThatHasRegrown(t *testing.T) {
	t.Parallel()
	c := testkit.NewCluster(t)
	c.Fill(testkit.Table, 1, 8)
	var end int64
	var asked int32
	c.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked = req.(*kmsg.OffsetForLeaderEpochRequest).Topics[0].Partitions[0].LeaderEpoch
		return refusal.EpochEnd(req, end), nil, true
	})
	for _, tt := range []struct {
		epoch     int32
		end       int64
		truncated bool
	}{{5, 8, false}, {5, 7, true}, {5, -1, true}, {-1, 7, true}} {
		end = 8
		dir := t.TempDir()
		s := catchUp(t, c, dir)
		require.EqualValues(t, 0, s.epoch, "of the records")
		w := s.NewWrite()
		w.SetEpoch(tt.epoch)
		require.NoError(t, w.Set([]byte("stale"), []byte("1")))
		require.NoError(t, w.Commit(7))
		require.Equal(t, max(0, tt.epoch), s.epoch)
		require.NoError(t, s.Close())
		end = tt.end
		s = catchUp(t, c, dir)
		have := contents(t, s)
		require.NoError(t, s.Close())
		require.Equal(t, max(0, tt.epoch), asked)
		require.Equal(t, tt.truncated, len(have) == 8, "%+v: %v", tt, have)
		requireOffset(t, s, 7)
	}
}

// A corrupted store is rebuilt in the same session.
func TestCatchUpOfACorruptedStore(t *testing.T) {
	t.Parallel()
	c := testkit.NewCluster(t)
	c.Fill(testkit.Table, 1, 5000)
	s := catchUp(t, c, t.TempDir())
	require.NoError(t, s.Close())
	require.NoError(t, s.Open())
	damage(t, newest(t, s, "*.sst"))
	_, err := s.Find([]byte("key-004000"), func([]byte) error { return nil })
	require.Error(t, err)
	_, err = s.CatchUp(testkit.Context(t), c.Client(), Hooks{})
	require.NoError(t, err)
	require.Len(t, contents(t, s), 5000)
	put(t, s, c.End(testkit.Table, 0)-1, "", "continues")
}

func TestReadingIsRetried(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.UnknownTopicID,
		kerr.LeaderNotAvailable, kerr.KafkaStorageError} {
		t.Run(e.Message, func(t *testing.T) {
			c := testkit.NewCluster(t)
			c.Fill(testkit.Table, 1, 3)
			fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: testkit.Table, Err: e})
			require.Len(t, contents(t, catchUp(t, c, t.TempDir())), 3)
			require.Equal(t, 1, fault.Hits())
		})
	}
	t.Run("connection lost", func(t *testing.T) {
		c := testkit.NewCluster(t)
		c.Fill(testkit.Table, 1, 3)
		c.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			return nil, errors.New("cut"), true // once
		})
		require.Len(t, contents(t, catchUp(t, c, t.TempDir())), 3)
	})
	t.Run("final", func(t *testing.T) {
		c := testkit.NewCluster(t)
		c.Topic(testkit.Table, 1)
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: testkit.Table, Err: kerr.TopicAuthorizationFailed})
		_, err := tryCatchUp(t, c, t.TempDir())
		require.ErrorIs(t, err, kerr.TopicAuthorizationFailed)
	})
}

// A topic that is recreated between two requests of a CatchUp is another log.
func TestCatchUpOfATopicRecreatedMeanwhile(t *testing.T) {
	t.Parallel()
	c := testkit.NewCluster(t)
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Record(testkit.Table, 0, "end", "1"))
	s := newStore(t, t.TempDir())
	s.topic = testkit.Table
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err := s.CatchUp(testkit.Context(t), c.Client(), Hooks{
		Begin: func() error {
			require.NoError(t, c.DeleteTopic(testkit.Table))
			c.Topic(testkit.Table, 1)
			c.Produce(testkit.Record(testkit.Table, 0, "end", "2"))
			return nil
		},
		Apply: func(kafka.LogChunk) error { return errors.New("it was read") },
	})
	require.ErrorIs(t, err, kafka.ErrRecreated)
}

func TestCatchUpOfAnotherLog(t *testing.T) {
	t.Parallel()
	for name, another := range map[string]func(c *testkit.Cluster) *testkit.Cluster{
		"cluster": func(*testkit.Cluster) *testkit.Cluster { return testkit.NewCluster(t, kfake.ClusterID("another")) },
		"topic": func(c *testkit.Cluster) *testkit.Cluster {
			require.NoError(t, c.DeleteTopic(testkit.Table))
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := testkit.NewCluster(t)
			c.Topic(testkit.Table, 1)
			c.Produce(testkit.Record(testkit.Table, 0, "a", "1"),
				testkit.Record(testkit.Table, 0, strings.Repeat("\xff", 16), "1"))
			dir := t.TempDir()
			s := catchUp(t, c, dir)
			first := s.LogID()
			require.NoError(t, s.Close())

			c = another(c)
			c.Fill(testkit.Table, 1, 3)
			s = catchUp(t, c, dir)
			require.Equal(t, []string{"key-000000=value-0", "key-000001=value-1", "key-000002=value-2"}, contents(t, s))
			require.NotEqual(t, first, s.LogID())
		})
	}
}
