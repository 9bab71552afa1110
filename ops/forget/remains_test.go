package forget

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

func TestKeptFor(t *testing.T) {
	for in, want := range map[string]string{
		"-1":        "indefinitely (retention.ms is -1)",
		"604800000": "for 7 days from now (retention.ms), and until Kafka deletes the segment",
		"604800001": "for 8 days from now (retention.ms), and until Kafka deletes the segment",
		"86399999":  "for 23h59m59.999s from now (retention.ms), and until Kafka deletes the segment",
	} {
		kept, err := keptFor(in, "from now")
		require.NoError(t, err)
		require.Equal(t, want, kept)
	}
	_, err := keptFor("", "from now")
	require.ErrorContains(t, err, "is not a number")
}

func TestRemainingData(t *testing.T) {
	w := newWorld(t, "")
	w.Set(schema.TopicLikes, "retention.ms", "864000000") // ten days
	w.populateAndFold()
	letter := func(partition int32, key, value string) {
		w.Write(&kgo.Record{Topic: schema.TopicDLT, Partition: partition, Key: []byte(key), Value: []byte(value)})
	}
	letter(0, "2", "no event")
	letter(1, "02", `{"user_id":2`)
	letter(2, "3", `{"post_id":2,"user_id":"2","action":"LIKE"}`)
	letter(3, "x", `{"post_id":5,"user_id":2,"action":"LIKE"}`)
	letter(3, "3", `{"user_id":7}`)
	remain := func(o Options, where string) Remain {
		for _, m := range w.mustRun(o).Remains {
			if m.Where == where {
				return m
			}
		}
		require.Fail(t, "nothing is reported about "+where)
		return Remain{}
	}
	records := func(o Options, where string) int64 {
		m := remain(o, where)
		require.NotNil(t, m.Records)
		return *m.Records
	}
	require.EqualValues(t, 3, records(options(Post, 2), schema.TopicDLT))
	require.EqualValues(t, 2, records(options(User, 2), schema.TopicDLT))
	require.EqualValues(t, 0, records(options(Post, 6), schema.TopicDLT))
	require.EqualValues(t, 6, records(options(Post, 2), schema.TopicState),
		"including users who withdrew it themselves")
	require.EqualValues(t, 7, records(options(User, 2), schema.TopicState))
	require.Contains(t, remain(options(Post, 2), schema.TopicLikes).Kept, "10 days")
	require.Contains(t, remain(options(Post, 2, 3), "rankings").What, `"kudos ranker exclude 2 3"`)
	for where, users := range map[string]bool{
		schema.TopicLikes: true, schema.TopicState: true, schema.TopicDLT: true,
		schema.TopicUpdates: false, "MySQL": false, "rankings": false,
	} {
		require.Equal(t, users, remain(options(User, 2), where).UserIDs, where)
	}
}
