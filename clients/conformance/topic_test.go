package conformance

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/dev/testkit"
	"kudos/schema"
)

const topic = schema.TopicLikes

// like is a record that is in its partition of four.
func like(post uint64, value string) *kgo.Record {
	key := strconv.FormatUint(post, 10)
	return testkit.Record(topic, schema.PartitionFor(post, 4), key, value)
}

func checkTopic(t *testing.T, c *testkit.Cluster, buckets schema.UserBuckets, from map[int32]int64) *TopicReport {
	t.Helper()
	read := int64(0)
	r, err := CheckTopic(t.Context(), c.Client(), topic, buckets, from, func(n int64) { read += n })
	require.NoError(t, err)
	all := int64(0)
	for p, next := range r.Next {
		all += next - from[p]
	}
	require.Equal(t, all, read, "progress")
	return r
}

func TestCheckTopic(t *testing.T) {
	c := testkit.NewCluster(t)
	c.Topic(topic, 4)
	empty := checkTopic(t, c, "", nil)
	require.True(t, empty.Passed())
	require.Equal(t, map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0}, empty.Next)

	now := time.Now()
	at := func(d time.Duration) string {
		return `{"user_id":"7","action":"LIKE","time_ms":"` + strconv.FormatInt(now.Add(d).UnixMilli(), 10) + `"}`
	}
	misrouted := like(43, at(0))
	misrouted.Partition = (misrouted.Partition + 1) % 4
	forwarded := like(43, at(0))
	forwarded.Headers = []kgo.RecordHeader{{Key: schema.HeaderForwarded, Value: []byte("1@0")}}
	records := []*kgo.Record{
		like(42, at(0)), like(1, `{"user_id":1,"action":true}`), like(42, at(59*time.Second)),
		like(2, at(-23*time.Hour)),
		like(42, at(61*time.Second)), like(42, at(62*time.Second)), like(42, at(-25*time.Hour)), misrouted, forwarded,
		like(42, `{"post_id":41,"user_id":1,"action":"LIKE"}`), like(42, `{"user_id":1e19,"action":"LIKE"}`),
		like(42, ""),
		like(7, `{"user_id":"1","action":"LIKE","time_ms":"9223372036854775807"}`),
	}
	for _, r := range records {
		r.Timestamp = now
	}
	c.Produce(records...)
	c.Transact("aborted", testkit.Abort(), like(42, "aborted"))

	r := checkTopic(t, c, "", nil)
	require.False(t, r.Passed())
	require.EqualValues(t, 4, r.Partitions)
	require.EqualValues(t, 9, r.Valid)
	require.EqualValues(t, 1, r.Forwarded)
	owner := schema.PartitionFor(42, 4)
	require.Equal(t, map[schema.PoisonReason]*Finding{
		schema.KeyMismatch: {1, owner, 6, "post_id: is 41 in the value but 42 in the key"},
		schema.Undecodable: {2, owner, 7, "user_id: 1e19 is not a whole number in range"},
	}, r.DeadLetters)
	require.Equal(t, int64(1), r.Misrouted.Records)
	require.Equal(t, misrouted.Partition, r.Misrouted.Partition)
	require.Contains(t, r.Misrouted.Detail, "post 43 of user 7 belongs in partition "+
		strconv.Itoa(int(schema.PartitionFor(43, 4))))
	require.Equal(t, int64(3), r.Ahead.Records)
	require.Equal(t, int64(1), r.Late.Records)
	require.Equal(t, Finding{1, owner, 5, r.Late.Detail}, *r.Late)
	require.Contains(t, r.Late.Detail, " is 90000 s before the arrival")

	again := checkTopic(t, c, "", r.Next)
	require.True(t, again.Passed())
	require.Zero(t, again.Valid)
	require.Equal(t, r.Next, again.Next)
}

func TestCheckTopicWithUserBuckets(t *testing.T) {
	c := testkit.NewCluster(t)
	c.Topic(topic, 4)
	layout, err := schema.NewLayout(4, "42:16")
	require.NoError(t, err)
	for user := uint64(1); user < 20; user++ {
		event := schema.Event{PostID: 42, UserID: user, Action: schema.Like, Region: schema.UnknownRegion}
		c.Produce(testkit.Record(topic, layout.PartitionOf(42, user), string(layout.AppendKey(nil, 42, user)),
			string(schema.AppendEvent(nil, &event))))
	}
	require.True(t, checkTopic(t, c, layout.UserBuckets(), nil).Passed())
	require.NotNil(t, checkTopic(t, c, "", nil).Misrouted)
}

func TestCheckTopicThatIsMissing(t *testing.T) {
	c := testkit.NewCluster(t)
	_, err := CheckTopic(t.Context(), c.Client(), topic, "", nil, nil)
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
}
