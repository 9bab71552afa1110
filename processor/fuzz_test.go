package processor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// FuzzJudge: every record is one of event, forward and dead letter; a forward is an
// event where it arrives; and what a dead letter takes fits its topic.
func FuzzJudge(f *testing.F) {
	f.Add([]byte("42"), []byte(`{"user_id":7,"action":"LIKE","region":"DE"}`), "", "", int32(1), int64(5))
	f.Add([]byte("42"), schema.AppendEvent(nil, &schema.Event{PostID: 42, UserID: 7, Action: schema.Dislike, TimeMs: appendMs + 1e9}), schema.HeaderForwarded, "1@5", int32(2), int64(5))
	f.Add([]byte("x"), []byte("\xff"), "trace", "a", int32(0), int64(0))
	f.Fuzz(func(t *testing.T, key, value []byte, header, headerValue string, partition int32, offset int64) {
		rec := &kgo.Record{
			Topic: schema.TopicLikes, Partition: partition & (testPartitions - 1), Offset: offset, Key: key, Value: value,
			Headers: []kgo.RecordHeader{{Key: header, Value: []byte(headerValue)}}, Timestamp: time.UnixMilli(appendMs),
		}
		v := judgeOne(rec)
		require.Equal(t, 1, len(v.events)+len(v.forwards)+len(v.deadLetters))
		for _, e := range v.events {
			require.Equal(t, rec.Partition, schema.PartitionFor(e.PostID, testPartitions))
			require.LessOrEqual(t, e.TimeMs, appendMs+60_000)
			require.NoError(t, e.Check())
		}
		for _, forward := range v.forwards {
			require.NotEqual(t, rec.Partition, forward.Partition)
			arrived := *forward
			arrived.Timestamp = rec.Timestamp.Add(time.Hour)
			home := judgeOne(&arrived)
			require.Len(t, home.events, 1, "a forwarded event")
			require.LessOrEqual(t, home.events[0].TimeMs, appendMs+60_000, "its time is settled where it was found")
		}
		for i, letter := range v.deadLetters {
			require.Contains(t, schema.PoisonReasons, v.reasons[i])
			require.Less(t, len(letter.Key)+len(letter.Value), int(schema.BatchMaxBytes(schema.TopicDLT)))
		}
	})
}
