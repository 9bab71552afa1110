package classify

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/processor/fold"
	"kudos/processor/fold/foldtest"
	"kudos/schema"
)

const testPartitions, appendMs = foldtest.Partitions, foldtest.AppendMs

var testLayout = foldtest.Layout

func classifyOne(rec *kgo.Record) *Classified {
	v := &Classified{}
	v.Add(rec, testLayout)
	return v
}

func TestInvalidEventBecomesADeadLetter(t *testing.T) {
	forwarded := kgo.RecordHeader{Key: schema.HeaderForwarded, Value: []byte("1@5")}
	misplaced := foldtest.PostAt(0, 0)
	for _, c := range []struct {
		reason     schema.PoisonReason
		key, value string
		header     []kgo.RecordHeader
	}{
		{schema.Undecodable, "1", "", nil},
		{schema.Undecodable, "1", "\xff\xff\xff", nil},
		{schema.Undecodable, "1", `{"user_id":`, nil},
		{schema.Undecodable, "1", `{"user_id":"x","action":"LIKE"}`, nil},
		{schema.KeyMismatch, "1", `{"post_id":2,"user_id":1,"action":"LIKE"}`, nil},
		{schema.KeyMismatch, "post-1", `{"user_id":1,"action":"LIKE"}`, nil},
		{schema.KeyMismatch, strings.Repeat("1", 70), `{"user_id":1,"action":"LIKE"}`, nil},
		{schema.ZeroID, "0", `{"user_id":1,"action":"LIKE"}`, nil},
		{schema.ZeroID, "", `{"user_id":1,"action":"LIKE"}`, nil},
		{schema.ZeroID, "1", `{"action":"LIKE"}`, nil},
		{schema.UnknownAction, "1", `{"user_id":1}`, nil},
		{schema.UnknownAction, "1", `{"user_id":1,"action":"LOVE"}`, nil},
		{schema.NegativeTime, "1", `{"user_id":1,"action":"LIKE","time_ms":-1}`, nil},
		{schema.OverSize, "1", `{"user_id":1,"action":"LIKE","x":"` + strings.Repeat("x", schema.MaxEventBytes) + `"}`,
			nil},
		{schema.Misplaced, fmt.Sprint(misplaced), `{"user_id":1,"action":"LIKE"}`, []kgo.RecordHeader{forwarded}},
	} {
		t.Run(fmt.Sprintf("%s/%.20s/%.40q", c.reason, c.key, c.value), func(t *testing.T) {
			original := append([]kgo.RecordHeader{{Key: "trace", Value: []byte("a")}, {Key: "trace", Value: nil}},
				c.header...)
			rec := foldtest.Record(3, 41, c.key, c.value, original...)
			v := classifyOne(rec)
			require.Empty(t, v.Events)
			require.Empty(t, v.Forwards)
			require.Equal(t, []schema.PoisonReason{c.reason}, v.Reasons)
			require.Len(t, v.DeadLetters, 1)
			dead := v.DeadLetters[0]
			require.Equal(t, schema.TopicDLT, dead.Topic)
			require.Equal(t, int32(3), dead.Partition)
			require.Equal(t, rec.Key, dead.Key)
			require.Equal(t, rec.Value, dead.Value)
			require.Equal(t, original, dead.Headers[:len(original)], "the original's headers come first")
			require.Equal(t, original, rec.Headers, "the original is unchanged")
			ours := dead.Headers[len(original):]
			require.Len(t, ours, 4)
			require.Equal(t, schema.HeaderDLTError, ours[0].Key)
			require.True(t, strings.HasPrefix(string(ours[0].Value), string(c.reason)+": "), "%s", ours[0].Value)
			require.Equal(t, []kgo.RecordHeader{
				{Key: schema.HeaderDLTTopic, Value: []byte("likes")},
				{Key: schema.HeaderDLTPartition, Value: []byte("3")},
				{Key: schema.HeaderDLTOffset, Value: []byte("41")},
			}, ours[1:])
		})
	}
}

func TestEveryPoisonReasonIsCovered(t *testing.T) {
	require.ElementsMatch(t, schema.PoisonReasons, []schema.PoisonReason{schema.Undecodable, schema.KeyMismatch,
		schema.ZeroID, schema.UnknownAction, schema.NegativeTime, schema.OverSize, schema.Misplaced},
		"a new reason needs a case in TestInvalidEventBecomesADeadLetter")
}

// A compressed batch of likes may hold a record too large for likes.dlt. Untruncated, it would block the partition.
func TestDeadLetterFitsItsTopic(t *testing.T) {
	limit := int(schema.BatchMaxBytes(schema.TopicDLT))
	fill := func(n int) string { return strings.Repeat("x", n) }
	manyHeaders := make([]kgo.RecordHeader, 20_000)
	for name, c := range map[string]struct {
		rec *kgo.Record
		cut bool
	}{
		"a full batch of likes": {foldtest.Record(0, 0, "1", fill(schema.LikesMaxMessageBytes)), false},
		"a large value":         {foldtest.Record(0, 0, "1", fill(1<<20)), true},
		"a large key":           {foldtest.Record(0, 0, fill(1<<20), "{}"), true},
		"a large header": {foldtest.Record(0, 0, "1", "{}",
			kgo.RecordHeader{Key: "h", Value: bytes.Repeat([]byte("x"), 1<<20)}), true},
		"many headers": {foldtest.Record(0, 0, "1", "{}", manyHeaders...), true},
	} {
		t.Run(name, func(t *testing.T) {
			dead := classifyOne(c.rec).DeadLetters[0]
			require.LessOrEqual(t, wireBytes(dead), limit-200, "bytes of the record, leaving space for the batch")
			require.Equal(t, c.cut, Header(dead, headerTruncated) != "", "marked as truncated")
			if !c.cut {
				require.Equal(t, c.rec.Value, dead.Value)
				return
			}
			require.Equal(t, c.rec.Key[:min(len(c.rec.Key), maxCutKey)], dead.Key)
			require.Equal(t, c.rec.Value[:min(len(c.rec.Value), schema.MaxEventBytes)], dead.Value)
			require.NotEmpty(t, Header(dead, schema.HeaderDLTOffset), "where to find the whole record")
		})
	}
}

// wireBytes returns at least what Kafka's record format takes for a record.
func wireBytes(rec *kgo.Record) int {
	n := 30 + len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		n += 10 + len(h.Key) + len(h.Value)
	}
	return n
}

func TestMisroutedEventIsForwardedWithItsTimeAndRegion(t *testing.T) {
	owner := foldtest.PostAt(2, 0)
	us, california := schema.Region{'U', 'S'}, schema.Region{'U', 'S', '-', 'C', 'A'}
	event := func(action schema.Action, timeMs int64, region schema.Region) schema.Event {
		return schema.Event{PostID: owner, UserID: 9, Action: action, TimeMs: timeMs, Region: region}
	}
	dislike := event(schema.Dislike, appendMs-5, california)
	key, ahead := fmt.Sprint(owner), appendMs+60_000
	for name, c := range map[string]struct {
		key, value         string
		want               schema.Event
		capped, badRegions int
	}{
		"Protobuf": {key, string(schema.AppendEvent(nil, &dislike)), dislike, 0, 0},
		"JSON":     {key, `{"user_id":"9","action":true,"time_ms":5,"region":"us"}`, event(schema.Like, 5, us), 0, 0},
		"a key that is not canonical": {"000" + key, `{"user_id":9,"action":"LIKE","time_ms":5,"region":"US"}`,
			event(schema.Like, 5, us), 0, 0},
		"no key": {"", `{"post_id":` + key + `,"user_id":9,"action":"LIKE","time_ms":5,"region":"US"}`,
			event(schema.Like, 5, us), 0, 0},
		"no time": {key, `{"user_id":9,"action":"LIKE","region":"US"}`, event(schema.Like, appendMs, us), 0, 0},
		"a time far ahead": {key, fmt.Sprintf(`{"user_id":9,"action":"LIKE","time_ms":%d,"region":"US"}`, ahead+1),
			event(schema.Like, ahead, us), 1, 0},
		"an invalid region": {key, `{"user_id":9,"action":"LIKE","time_ms":5,"region":"USA!"}`,
			event(schema.Like, 5, schema.UnknownRegion), 0, 1},
		"a foreign header alone": {key, `{"user_id":9,"action":"UNLIKE","time_ms":5,"region":"US"}`,
			event(schema.Unlike, 5, us), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := classifyOne(foldtest.Record(3, 17, c.key, c.value, kgo.RecordHeader{Key: "trace", Value: []byte("a")}))
			require.Empty(t, v.Events)
			require.Empty(t, v.DeadLetters)
			require.Equal(t, c.capped, v.Capped)
			require.Equal(t, c.badRegions, v.BadRegions)
			require.Len(t, v.Forwards, 1)
			f := v.Forwards[0]
			require.Equal(t, schema.TopicLikes, f.Topic)
			require.Equal(t, int32(2), f.Partition)
			require.Equal(t, key, string(f.Key))
			require.Equal(t, []kgo.RecordHeader{{Key: schema.HeaderForwarded, Value: []byte("3@17")}}, f.Headers)

			// In its partition it is classified again, a day later, with the same result.
			f.Offset, f.Timestamp = 5, time.UnixMilli(appendMs+86_400_000)
			there := classifyOne(f)
			require.Equal(t, []fold.Event{{Event: c.want, Offset: 5}}, there.Events)
			require.Zero(t, there.Capped+there.BadRegions, "counted once in total")

			// In a wrong partition once more, it is not forwarded.
			f.Partition = 1
			require.Equal(t, []schema.PoisonReason{schema.Misplaced}, classifyOne(f).Reasons)
		})
	}
}

func TestEventInItsPartitionIsFolded(t *testing.T) {
	post := foldtest.PostAt(1, 0)
	at := func(ms int64) string { return fmt.Sprintf(`{"user_id":9,"action":"LIKE","time_ms":%d}`, ms) }
	for name, c := range map[string]struct {
		key, value         string
		timeMs             int64
		capped, badRegions int
	}{
		"canonical":               {fmt.Sprint(post), at(5), 5, 0, 0},
		"a key with zeros":        {fmt.Sprintf("00%d", post), at(5), 5, 0, 0},
		"no key":                  {"", fmt.Sprintf(`{"post_id":"%d","user_id":9,"action":"LIKE","time_ms":5}`, post), 5, 0, 0},
		"no time":                 {fmt.Sprint(post), `{"user_id":9,"action":"LIKE"}`, appendMs, 0, 0},
		"as far ahead as allowed": {fmt.Sprint(post), at(appendMs + 60_000), appendMs + 60_000, 0, 0},
		"a millisecond too far":   {fmt.Sprint(post), at(appendMs + 60_001), appendMs + 60_000, 1, 0},
		"a malformed region": {fmt.Sprint(post), `{"user_id":9,"action":"LIKE","time_ms":5,"region":"Atlantis"}`,
			5, 0, 1},
		"a non-text region": {fmt.Sprint(post), `{"user_id":9,"action":"LIKE","time_ms":5,"region":7}`, 5, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			v := classifyOne(foldtest.Record(1, 8, c.key, c.value))
			require.Empty(t, v.Forwards)
			require.Empty(t, v.Reasons)
			require.Len(t, v.Events, 1)
			e := v.Events[0]
			require.Equal(t, post, e.PostID)
			require.Equal(t, int64(8), e.Offset)
			require.Equal(t, c.timeMs, e.TimeMs)
			require.Equal(t, schema.UnknownRegion, e.Region)
			require.Equal(t, []int{c.capped, c.badRegions}, []int{v.Capped, v.BadRegions})
		})
	}
}

// TestEventsAheadOfTheLogAreCounted: only a wrong clock can make them; old events are normal.
func TestEventsAheadOfTheLogAreCounted(t *testing.T) {
	var v Classified
	for i, timeMs := range []int64{0, 1, appendMs, appendMs + 1000, appendMs + 1001, appendMs + 60_001} {
		v.Add(foldtest.Record(1, int64(i), fmt.Sprint(foldtest.PostAt(1, 0)),
			fmt.Sprintf(`{"user_id":9,"action":"LIKE","time_ms":%d}`, timeMs)), testLayout)
	}
	require.Len(t, v.Events, 6)
	require.Equal(t, []int{2, 1}, []int{v.Ahead, v.Capped})
}

// A Classified is reused for the next batch.
func TestResetKeepsNothing(t *testing.T) {
	v := classifyOne(foldtest.Record(1, 8, "0", "{}"))
	v.Add(foldtest.Record(1, 9, fmt.Sprint(foldtest.PostAt(0, 0)),
		`{"user_id":9,"action":"LIKE","time_ms":9999999999999,"region":"?"}`), testLayout)
	v.Add(foldtest.Record(1, 10, fmt.Sprint(foldtest.PostAt(1, 0)), `{"user_id":9,"action":"LIKE"}`), testLayout)
	require.Equal(t, []int{1, 1, 1, 1, 1, 1},
		[]int{len(v.Events), len(v.Forwards), len(v.DeadLetters), len(v.Reasons), v.Capped, v.BadRegions})
	v.Reset()
	require.Equal(t, []int{0, 0, 0, 0, 0, 0},
		[]int{len(v.Events), len(v.Forwards), len(v.DeadLetters), len(v.Reasons), v.Capped, v.BadRegions})
}

// An event of a post with user buckets belongs to the partition of its user's bucket, whatever its key says; a
// forwarded one has the key of that bucket.
func TestEventOfAPostWithUserBuckets(t *testing.T) {
	layout, err := schema.NewLayout(testPartitions, "42:16")
	require.NoError(t, err)
	atHome, forwarded := 0, 0
	for user := uint64(1); user <= 200; user++ {
		owner := layout.PartitionOf(42, user)
		for p := range int32(testPartitions) {
			for _, key := range []string{"42", "42/0", string(layout.AppendKey(nil, 42, user))} {
				v := &Classified{}
				v.Add(foldtest.Record(p, 17, key, fmt.Sprintf(`{"user_id":%d,"action":"LIKE"}`, user)), layout)
				require.Empty(t, v.DeadLetters)
				if p == owner {
					require.Len(t, v.Events, 1)
					require.Empty(t, v.Forwards)
					atHome++
					continue
				}
				require.Empty(t, v.Events)
				require.Len(t, v.Forwards, 1)
				require.Equal(t, owner, v.Forwards[0].Partition)
				require.Equal(t, string(layout.AppendKey(nil, 42, user)), string(v.Forwards[0].Key))
				forwarded++
				again := &Classified{}
				again.Add(v.Forwards[0], layout)
				require.Empty(t, again.DeadLetters)
			}
		}
	}
	require.Equal(t, 3*atHome, forwarded)
}

// An event forwarded before partitions were added may be forwarded again once per layout; then it is a dead letter.
func TestEventIsForwardedOncePerLayout(t *testing.T) {
	rec := foldtest.Record(1, 8, fmt.Sprint(foldtest.PostAt(0, 0)), `{"user_id":9,"action":"LIKE","time_ms":1}`)
	for _, c := range []struct {
		header  string
		layouts uint32
		next    string // "": a dead letter
	}{
		{"", 0, "1@8"},
		{"3@5", 0, ""},
		{"", 2, "1@8/2"},
		{"3@5", 2, "1@8/2"},
		{"3@5/1", 2, "1@8/2"},
		{"3@5/2", 2, ""},
		{"3@5/3", 2, ""},
		{"3@5/x", 2, ""},
		{"nothing of ours", 1, "1@8/1"},
	} {
		rec.Headers = nil
		if c.header != "" {
			rec.Headers = []kgo.RecordHeader{{Key: schema.HeaderForwarded, Value: []byte(c.header)}}
		}
		v := &Classified{Layouts: c.layouts}
		v.Add(rec, testLayout)
		if c.next == "" {
			require.Equal(t, []schema.PoisonReason{schema.Misplaced}, v.Reasons, "%+v", c)
			continue
		}
		require.Len(t, v.Forwards, 1, "%+v", c)
		require.Equal(t, c.next, Header(v.Forwards[0], schema.HeaderForwarded))
		v.Reset()
		require.Equal(t, c.layouts, v.Layouts)
	}
}

// FuzzClassify: a record is an event, a forward (an event where it arrives), or a dead letter, which fits its topic.
func FuzzClassify(f *testing.F) {
	f.Add([]byte("42"), []byte(`{"user_id":7,"action":"LIKE","region":"DE"}`), "", "", int32(1), int64(5))
	f.Add([]byte("42"), schema.AppendEvent(nil,
		&schema.Event{PostID: 42, UserID: 7, Action: schema.Dislike, TimeMs: appendMs +
			1e9}), schema.HeaderForwarded, "1@5", int32(2), int64(5))
	f.Add([]byte("x"), []byte("\xff"), "trace", "a", int32(0), int64(0))
	f.Fuzz(func(t *testing.T, key, value []byte, header, headerValue string, partition int32, offset int64) {
		rec := &kgo.Record{Topic: schema.TopicLikes, Partition: partition & (testPartitions - 1), Offset: offset,
			Key: key, Value: value, Headers: []kgo.RecordHeader{{Key: header, Value: []byte(headerValue)}},
			Timestamp: time.UnixMilli(appendMs)}
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
			owner := classifyOne(&arrived)
			require.Len(t, owner.Events, 1, "a forwarded event")
			require.LessOrEqual(t, owner.Events[0].TimeMs, appendMs+60_000, "its time was resolved where it was found")
		}
		for i, letter := range v.DeadLetters {
			require.Contains(t, schema.PoisonReasons, v.Reasons[i])
			require.Less(t, len(letter.Key)+len(letter.Value), int(schema.BatchMaxBytes(schema.TopicDLT)))
		}
	})
}

// TestVoidNeedsTheStateTable: until the state table says that there may be voids, which keeps earlier builds away, such
// an event is a dead letter, as it is for them.
func TestVoidNeedsTheStateTable(t *testing.T) {
	post := foldtest.PostAt(1, 0)
	event := func(e schema.Event) string {
		e.Region = schema.UnknownRegion
		return string(schema.AppendEvent(nil, &e))
	}
	void := foldtest.Record(3, 8, "", event(schema.Event{UserID: 9, Action: schema.Void}))
	recounted := schema.Event{PostID: post, UserID: 9, Action: schema.Recount}
	recount := foldtest.Record(3, 9, fmt.Sprint(post), event(recounted))
	require.Equal(t, []schema.PoisonReason{schema.ZeroID}, classifyOne(void).Reasons)
	require.Equal(t, []schema.PoisonReason{schema.UnknownAction}, classifyOne(recount).Reasons)

	v := &Classified{Voids: true, VoidsFrom: void.Offset + 1}
	v.Add(void, testLayout)
	require.Equal(t, []schema.PoisonReason{schema.ZeroID}, v.Reasons, "as it was before")
	v = &Classified{Voids: true, VoidsFrom: void.Offset}
	v.Add(void, testLayout)
	require.Len(t, v.Events, 1)
	require.Equal(t, []any{uint64(0), uint64(9), schema.Void, int64(8)},
		[]any{v.Events[0].PostID, v.Events[0].UserID, v.Events[0].Action, v.Events[0].Offset}, "in its partition")
	v.Add(recount, testLayout)
	require.Len(t, v.Forwards, 1, "misrouted, as any event")
	require.EqualValues(t, 1, v.Forwards[0].Partition)
	there := &Classified{Voids: true}
	there.Add(v.Forwards[0], testLayout)
	require.Len(t, there.Events, 1)
	require.Equal(t, schema.Recount, there.Events[0].Action)
	v.Reset()
	require.True(t, v.Voids)
	require.Equal(t, void.Offset, v.VoidsFrom)
}
