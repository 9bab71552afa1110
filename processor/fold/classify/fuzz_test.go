package classify

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// FuzzClassify: every record is one of event, forward and dead letter; a forward is an
// event where it arrives; and what a dead letter takes fits its topic.
func FuzzClassify(f *testing.F) {
	f.Add([]byte("42"), []byte(`{"user_id":7,"action":"LIKE","region":"DE"}`), "", "", int32(1), int64(5))
	f.Add([]byte("42"), schema.AppendEvent(nil, &schema.Event{PostID: 42, UserID: 7, Action: schema.Dislike, TimeMs: appendMs + 1e9}), schema.HeaderForwarded, "1@5", int32(2), int64(5))
	f.Add([]byte("x"), []byte("\xff"), "trace", "a", int32(0), int64(0))
	f.Fuzz(func(t *testing.T, key, value []byte, header, headerValue string, partition int32, offset int64) {
		rec := &kgo.Record{
			Topic: schema.TopicLikes, Partition: partition & (testPartitions - 1), Offset: offset, Key: key, Value: value,
			Headers: []kgo.RecordHeader{{Key: header, Value: []byte(headerValue)}}, Timestamp: time.UnixMilli(appendMs),
		}
		v := classifyOne(rec)
		require.Equal(t, 1, len(v.Events)+len(v.Forwards)+len(v.DeadLetters))
		for _, e := range v.Events {
			require.Equal(t, rec.Partition, schema.PartitionFor(e.PostID, testPartitions))
			require.LessOrEqual(t, e.TimeMs, appendMs+60_000)
			require.NoError(t, e.Check())
		}
		for _, forward := range v.Forwards {
			require.NotEqual(t, rec.Partition, forward.Partition)
			arrived := *forward
			arrived.Timestamp = rec.Timestamp.Add(time.Hour)
			home := classifyOne(&arrived)
			require.Len(t, home.Events, 1, "a forwarded event")
			require.LessOrEqual(t, home.Events[0].TimeMs, appendMs+60_000, "its time is settled where it was found")
		}
		for i, letter := range v.DeadLetters {
			require.Contains(t, schema.PoisonReasons, v.Reasons[i])
			require.Less(t, len(letter.Key)+len(letter.Value), int(schema.BatchMaxBytes(schema.TopicDLT)))
		}
	})
}
