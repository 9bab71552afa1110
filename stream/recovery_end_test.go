package stream

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// staleLeader answers the next plain fetches of a table's partition 0 like a new leader whose high
// watermark is behind (KIP-207): with what is below upTo, as if the log ended there.
type staleLeader struct {
	answers atomic.Int64 // how many are still to come
	upTo    int64
	batches []byte
}

func (c *cluster) staleLeader(upTo, answers int64) *staleLeader {
	s := &staleLeader{upTo: upTo}
	r := newLogReader(c.client(), table, 0, 0)
	require.NoError(c.t, r.findLeader(testContext(c.t)))
	whole, err := r.broker().Request(testContext(c.t), r.request(c.PartitionInfo(table, 0).LogStartOffset))
	require.NoError(c.t, err)
	s.batches = whole.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches
	s.answers.Store(answers)
	c.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if f := req.(*kmsg.FetchRequest); f.SessionEpoch == -1 && s.answers.Add(-1) >= 0 {
			return s.answer(f), nil, true
		}
		return nil, nil, false
	})
	return s
}

func (s *staleLeader) answer(req *kmsg.FetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = s.upTo, s.upTo, 0
	for b := s.batches; len(b) > 0; {
		size := 12 + binary.BigEndian.Uint32(b[8:])
		next := int64(binary.BigEndian.Uint64(b)) + int64(binary.BigEndian.Uint32(b[23:])) + 1
		if next > req.Topics[0].Partitions[0].FetchOffset && next <= s.upTo {
			rp.RecordBatches = append(rp.RecordBatches, b[:size]...)
		}
		b = b[size:]
	}
	rt := kmsg.NewFetchResponseTopic()
	rt.Topic, rt.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
	rt.Partitions = append(rt.Partitions, rp)
	resp.Topics = append(resp.Topics, rt)
	return resp
}

// staleShapes are logs of which a new leader shows the first record only, or none.
var staleShapes = map[string]struct {
	write func(c *cluster)
	want  []string
}{
	"records": {func(c *cluster) {
		c.produce(record(table, 0, "a", "2"))
		c.produce(record(table, 0, "b", "2"))
	}, []string{"a=2", "b=2"}},
	"commit markers at the end": {func(c *cluster) {
		c.transact("t", committed(), record(table, 0, "a", "2"))
		c.transact("t", committed(), record(table, 0, "b", "2"))
	}, []string{"a=2", "b=2"}},
	"an aborted transaction at the end": {func(c *cluster) {
		c.transact("t", committed(), record(table, 0, "a", "2"))
		c.transact("t", aborted(), record(table, 0, "b", "2"))
	}, []string{"a=2"}},
	"nothing but aborted ones": {func(c *cluster) {
		c.transact("t", aborted(), record(table, 0, "b", "2"))
		c.transact("t", aborted(), record(table, 0, "b", "3"))
	}, []string{"a=1"}},
	"an open transaction at the end": {func(c *cluster) {
		c.transact("t", committed(), record(table, 0, "a", "2"))
		c.transact("u", nil, record(table, 0, "a", "3"))
	}, []string{"a=2"}},
}

// TestRegressRecoveryEndsAtListOffsets: what reads to the end of a log ended where the first fetch
// said that it ends. The high watermark of a new leader may be behind, and a fetch does not tell.
func TestRegressRecoveryEndsAtListOffsets(t *testing.T) {
	t.Parallel()
	for name, shape := range staleShapes {
		for at, upTo := range map[string]int64{"at the start": 0, "in between": 1} {
			t.Run(name+", stale "+at, func(t *testing.T) {
				c := newCluster(t)
				c.topic(table, 1)
				c.produce(record(table, 0, "a", "1"))
				shape.write(c)
				end := c.PartitionInfo(table, 0).LastStableOffset
				leader := c.staleLeader(upTo, 2)
				s, err := c.catchUp(t.TempDir())
				require.NoError(t, err)
				require.Equal(t, shape.want, contents(t, s))
				offset, _ := s.Offset()
				require.Equal(t, end-1, offset, "the last stable offset is reached")

				leader.answers.Store(2)
				var chunks []LogChunk
				require.NoError(t, ReadLog(testContext(t), c.client(), table, 0, 0, func(chunk LogChunk) (bool, error) {
					chunks = append(chunks, chunk)
					return chunk.Next < chunk.End, nil
				}))
				require.Equal(t, end, chunks[0].End, "from the first chunk on")
				require.Equal(t, end, chunks[len(chunks)-1].Next)

				leader.answers.Store(2)
				v := c.runView(t.TempDir())
				waitFor(t, "the view", func() bool { return v.Ready() == nil })
				var have []string
				require.NoError(t, v.Read(0, func(s *Store, _ Copy) error { have = contents(t, s); return nil }, nil))
				require.Equal(t, shape.want, have, "when it is ready, all is there")
			})
		}
	}
}

// A standby copy is not shown as one that is at the end before it is.
func TestRegressStandbyEndsAtListOffsets(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.topic(table, 1)
	c.produce(records(table, 0, 0, 5)...)
	leader := c.staleLeader(0, 1<<40)
	f := c.follow(t)
	waitFor(t, "the stale leader to be asked again", func() bool { return leader.answers.Load() < 1<<40-2 })
	state, behind := f.status()
	require.NotEqual(t, standbyFollowing, state)
	require.NotZero(t, behind)
	leader.answers.Store(0)
	waitFor(t, "the end", func() bool { state, behind := f.status(); return state == standbyFollowing && behind == 0 })
	offset, _ := f.store.Offset()
	require.EqualValues(t, 4, offset)
}

// follow keeps a standby copy of partition 0 of table until the test's end.
func (c *cluster) follow(t *testing.T) *follower {
	stores := NewStores(t.TempDir(), 8<<20, testLog())
	t.Cleanup(stores.Close)
	cl := c.client()
	tm := &topicManager{cl: cl, timeout: patience}
	s := &standby{cl: cl, topic: table, build: stores.Standby().Builder(tm.identify), log: testLog(), turns: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	f := newFollower(s, 0)
	go f.run(nil)
	t.Cleanup(func() { s.cancel(); <-f.done })
	return f
}

// TestEndIsAskedAgain while the leader does not know it yet, or another one leads.
func TestEndIsAskedAgain(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.OffsetNotAvailable, kerr.NotLeaderForPartition, kerr.LeaderNotAvailable} {
		t.Run(e.Message, func(t *testing.T) {
			c := newCluster(t)
			c.topic(table, 1)
			c.produce(records(table, 0, 0, 3)...)
			fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: table, Err: e, Count: 2})
			r := newLogReader(c.client(), table, 0, 0)
			f, err := r.fetch(testContext(t), 0)
			require.NoError(t, err)
			require.Len(t, f.records, 3)
			require.Equal(t, 2, fault.Hits())

			fault = c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: table, Err: e, Count: 2})
			_, end, err := Bounds(testContext(t), c.client(), table, 0)
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
	c.topic(table, 1)
	for range 5 {
		c.produce(records(table, 0, 0, 1)...)
	}
	counts := c.countRequests()
	r := newLogReader(c.client(), table, 0, 0)
	r.fetchBytes = 1 // a batch at a time
	for next := int64(0); next < 5; {
		f, err := r.fetch(testContext(t), next)
		require.NoError(t, err)
		require.Equal(t, next+1, f.next)
		next = f.next
	}
	require.EqualValues(t, 1, counts.of(kmsg.ListOffsets))
}

// TestEndThatIsNotReached: what was cut off meanwhile is not waited for without an end.
func TestEndThatIsNotReached(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.topic(table, 1)
	c.produce(records(table, 0, 0, 3)...)
	c.staleLeader(0, 1<<40)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second) // one try at least fails by then
	defer cancel()
	_, err := newLogReader(c.client(), table, 0, 0).fetch(ctx, 0)
	require.ErrorContains(t, err, "reading "+table+"/0 at offset 0: the leader has nothing from there on, but the log ended at offset 3")
}
