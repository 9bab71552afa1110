package stream

import (
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
	"github.com/lovoo/goka/codec"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/integration/testrun"
	"kudos/stream/kafka"
	"kudos/stream/store"
)

// view is goka's own table code (PartitionTable) on this package's ports.
type view struct {
	*goka.View
	stores *store.Set
	stop   func() // returns when Run has
}

func (c *cluster) view(dir string, options ...goka.ViewOption) *view {
	t := c.t
	cl := c.Client()
	tm := &topicManager{cl: cl, timeout: testkit.Patience}
	stores := store.NewSet(dir, 8<<20, testkit.Log())
	t.Cleanup(stores.Close)
	tc := newTableConsumer(cl, stores)
	v, err := goka.NewView(c.kafka.Brokers, goka.Table(testkit.Table), new(codec.String), append([]goka.ViewOption{
		goka.WithViewConsumerSaramaBuilder(func([]string, string) (sarama.Consumer, error) { return tc, nil }),
		goka.WithViewTopicManagerBuilder(func([]string) (goka.TopicManager, error) { return tm, nil }),
		goka.WithViewStorageBuilder(stores.Builder(tm.identify)),
		goka.WithViewCallback(tc.update),
		goka.WithViewHasher(fnv.New32a),
		goka.WithViewLogger(gokaLogger{testkit.Log()}),
	}, options...)...)
	require.NoError(t, err)
	return &view{v, stores, testrun.Start(t, "the view", testkit.Patience, v.Run)}
}

// shows tells whether the view has exactly these pairs.
func (v *view) shows(t testing.TB, want []string) bool {
	it, err := v.Iterator()
	if err != nil {
		return false // not running yet
	}
	defer it.Release()
	var have []string
	for it.Next() {
		value, err := it.Value()
		require.NoError(t, err)
		have = append(have, it.Key()+"="+value.(string))
	}
	require.NoError(t, it.Err())
	return fmt.Sprint(have) == fmt.Sprint(want)
}

// TestViewRecoversFromEveryLog: goka ends recovery by offset >= high watermark - 1,
// which at a marker no sarama consumer ever delivers.
func TestViewRecoversFromEveryLog(t *testing.T) {
	t.Parallel()
	for name, shape := range testkit.LogShapes {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.Topic(testkit.Table, 1)
			shape.Write(c.Cluster)
			dir := t.TempDir()
			for _, round := range []string{"first", "with local state"} {
				v := c.view(dir)
				testkit.WaitFor(t, "recovery, "+round, v.Recovered)
				require.True(t, v.shows(t, shape.Want), round)
				v.stop()
			}
			v := c.view(dir)
			testkit.WaitFor(t, "recovery", v.Recovered)
			c.Transact("u", testkit.Commit(), testkit.Record(testkit.Table, 0, "later", "1")) // fences what is open
			testkit.WaitFor(t, "what is written later", func() bool {
				value, err := v.Get("later")
				return err == nil && value == "1"
			})
		})
	}
}

func TestViewKeepsUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 4)
	for p := range int32(4) {
		c.Produce(testkit.Records(testkit.Table, p, 1000*int(p), 300)...)
	}
	v := c.view(t.TempDir())
	testkit.WaitFor(t, "recovery", v.Recovered)
	want := map[string]string{}
	for round := range 20 {
		p := int32(round % 4)
		key := fmt.Sprintf("key-%06d", 1000*int(p)+round)
		want[key] = fmt.Sprint(round)
		end := testkit.Commit()
		if round%5 == 4 {
			end = testkit.Abort()
			delete(want, key)
		}
		c.Transact(fmt.Sprintf("t-%d", p), end, testkit.Record(testkit.Table, p, key, fmt.Sprint(round)))
	}
	testkit.WaitFor(t, "the later writes", func() bool {
		for key, value := range want {
			st := v.stores.Get(testkit.Table, int32(key[6]-'0'))
			if get(t, st, key) != value {
				return false
			}
		}
		return true
	})
	for p := range int32(4) {
		st := v.stores.Get(testkit.Table, p)
		testkit.WaitFor(t, "the log's end", func() bool { offset, _ := st.Offset(); return offset == c.End(testkit.Table, p)-1 })
	}
	require.Equal(t, "value-3", get(t, v.stores.Get(testkit.Table, 0), "key-000003"))
}

// TestViewGoesOnAfterBrokerErrors: neither errors nor a move end it.
func TestViewGoesOnAfterBrokerErrors(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kfake.NumBrokers(3))
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Record(testkit.Table, 0, "a", "0"))
	v := c.view(t.TempDir())
	testkit.WaitFor(t, "recovery", v.Recovered)
	for i, e := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.UnknownTopicOrPartition, kerr.BrokerNotAvailable, kerr.UnknownLeaderEpoch} {
		fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: testkit.Table, Err: e})
		require.NoError(t, fault.Wait(testkit.Context(t), 1))
		require.NoError(t, c.MoveTopicPartition(testkit.Table, 0, int32(i%3)))
		value := fmt.Sprint(i + 1)
		c.Produce(testkit.Record(testkit.Table, 0, "a", value))
		testkit.WaitFor(t, "a later write after "+e.Message, func() bool { got, err := v.Get("a"); return err == nil && got == value })
	}
}

// TestReaderTellsOfItsEnd: a reader that cannot go on says so on Errors, keeps its
// channels open until it is closed, and then closes both.
func TestReaderTellsOfItsEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	c.Produce(testkit.Records(testkit.Table, 0, 0, 3)...)
	stores := store.NewSet(t.TempDir(), 1<<20, testkit.Log())
	defer stores.Close()
	tc := newTableConsumer(c.Client(), stores)
	pc, err := tc.ConsumePartition(testkit.Table, 0, 0)
	require.NoError(t, err)
	msg := <-pc.Messages()
	require.EqualValues(t, 2, msg.Offset, "one message a fetch, with the fetch's last offset")
	require.EqualValues(t, 3, pc.HighWaterMarkOffset())
	require.Equal(t, map[string]map[int32]int64{testkit.Table: {0: 3}}, tc.HighWaterMarks())

	require.NoError(t, c.DeleteTopic(testkit.Table))
	c.Topic(testkit.Table, 1)
	select {
	case err := <-pc.Errors():
		require.ErrorIs(t, err.Err, kafka.ErrRecreated)
	case <-time.After(testkit.Patience):
		t.Fatal("nothing was told of the topic made anew")
	}
	pc.AsyncClose()
	_, open := <-pc.Messages()
	require.False(t, open)
	_, open = <-pc.Errors()
	require.False(t, open)
	require.NoError(t, pc.Close())
}

// TestUpdateWithoutAFetch: goka's update callback must not invent anything.
func TestUpdateWithoutAFetch(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic(testkit.Table, 1)
	stores := store.NewSet(t.TempDir(), 1<<20, testkit.Log())
	defer stores.Close()
	tc := newTableConsumer(c.Client(), stores)
	_, ok := (&tableReader{}).take(3)
	require.False(t, ok)
	require.ErrorContains(t, tc.update(updateContext{}, nil, "", nil), "no reader or no local state for "+testkit.Table+"/0")
}

type updateContext struct{ goka.UpdateContext }

func (updateContext) Topic() goka.Stream { return testkit.Table }
func (updateContext) Partition() int32   { return 0 }
func (updateContext) Offset() int64      { return 0 }

func TestTopicManager(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.Topic("three", 3)
	c.Produce(testkit.Records("three", 1, 0, 4)...)
	c.Transact("open", nil, testkit.Record("three", 1, "a", "b"))
	tm := &topicManager{cl: c.Client(), timeout: testkit.Patience}
	partitions, err := tm.Partitions("three")
	require.NoError(t, err)
	require.Equal(t, []int32{0, 1, 2}, partitions)
	require.NoError(t, tm.EnsureTableExists("three", 3))
	require.ErrorContains(t, tm.EnsureStreamExists("three", 4), "topic three has 3 partitions, its input has 4")
	err = tm.EnsureTopicExists("none", 3, 1, nil)
	require.True(t, parks(err), err)
	require.Nil(t, c.TopicInfo("none"), "it verifies and never creates")

	require.NoError(t, c.DeleteRecords("three", 1, 2))
	oldest, err := tm.GetOffset("three", 1, sarama.OffsetOldest)
	require.NoError(t, err)
	require.EqualValues(t, 2, oldest)
	newest, err := tm.GetOffset("three", 1, sarama.OffsetNewest)
	require.NoError(t, err)
	require.EqualValues(t, 4, newest, "the last stable offset, not the high watermark")
	_, err = tm.GetOffset("three", 1, 12345)
	require.Error(t, err)
	_, err = tm.GetOffset("three", 7, sarama.OffsetNewest)
	require.Error(t, err)
}
