package producer

import (
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// Every route, with what it puts into Kafka: the canonical key, the partition that
// every writer must choose, and the event.
func TestLikes(t *testing.T) {
	r := start(t, func(o *Options) { o.RegionHeader = "X-Client-Region" })
	us, de, jp := schema.Region{'U', 'S', '-', 'C', 'A'}, schema.Region{'D', 'E'}, schema.Region{'J', 'P'}
	jsonBody := []string{"Content-Type", "application/json"}
	cases := []struct {
		method, path, body string
		headers            []string
		want               schema.Event
	}{
		{"PUT", "/v1/posts/7/likes/9?time_ms=1700000000000", "", nil,
			schema.Event{PostID: 7, UserID: 9, Action: schema.Like, TimeMs: 1_700_000_000_000, Region: schema.UnknownRegion}},
		{"DELETE", "/v1/posts/7/likes/9?time_ms=1700000000001", "", nil,
			schema.Event{PostID: 7, UserID: 9, Action: schema.Unlike, TimeMs: 1_700_000_000_001, Region: schema.UnknownRegion}},
		{"PUT", "/v1/posts/7/dislikes/9?time_ms=1700000000002", "", nil,
			schema.Event{PostID: 7, UserID: 9, Action: schema.Dislike, TimeMs: 1_700_000_000_002, Region: schema.UnknownRegion}},
		{"DELETE", "/v1/posts/7/dislikes/9?time_ms=1700000000003", "", nil,
			schema.Event{PostID: 7, UserID: 9, Action: schema.Unlike, TimeMs: 1_700_000_000_003, Region: schema.UnknownRegion}},
		{"PUT", "/v1/posts/007/likes/0000000000000000009?time_ms=1", "", nil,
			schema.Event{PostID: 7, UserID: 9, Action: schema.Like, TimeMs: 1, Region: schema.UnknownRegion}},
		{"PUT", "/v1/posts/18446744073709551615/likes/18446744073709551615?time_ms=9223372036854775807", "", nil,
			schema.Event{PostID: math.MaxUint64, UserID: math.MaxUint64, Action: schema.Like, TimeMs: math.MaxInt64, Region: schema.UnknownRegion}},

		{"POST", "/v1/posts/8/likes", `{"user_id":9,"time_ms":1700000000000}`, jsonBody,
			schema.Event{PostID: 8, UserID: 9, Action: schema.Like, TimeMs: 1_700_000_000_000, Region: schema.UnknownRegion}},
		{"POST", "/v1/posts/8/likes", ` {"userId":"9","timeMs":"1700000000000","region":"us-ca"}`, []string{"Content-Type", "application/json; charset=utf-8"},
			schema.Event{PostID: 8, UserID: 9, Action: schema.Like, TimeMs: 1_700_000_000_000, Region: us}},
		{"POST", "/v1/posts/8/likes?time_ms=5&region=de", `{"user_id":9}`, jsonBody,
			schema.Event{PostID: 8, UserID: 9, Action: schema.Like, TimeMs: 5, Region: de}},
		{"POST", "/v1/posts/8/likes?time_ms=5&region=de", `{"user_id":9,"time_ms":6,"region":"US-CA"}`, jsonBody,
			schema.Event{PostID: 8, UserID: 9, Action: schema.Like, TimeMs: 6, Region: us}},
		{"POST", "/v1/posts/8/likes?time_ms=5&region=de", `{"user_id":9,"time_ms":null,"region":null}`, jsonBody,
			schema.Event{PostID: 8, UserID: 9, Action: schema.Like, TimeMs: 5, Region: de}},

		{"PUT", "/v1/posts/9/likes/1?time_ms=1&region=de", "", []string{"X-Client-Region", "JP"},
			schema.Event{PostID: 9, UserID: 1, Action: schema.Like, TimeMs: 1, Region: de}},
		{"PUT", "/v1/posts/9/likes/1?time_ms=1", "", []string{"X-Client-Region", "jp"},
			schema.Event{PostID: 9, UserID: 1, Action: schema.Like, TimeMs: 1, Region: jp}},
		{"PUT", "/v1/posts/9/likes/1?time_ms=1&region=Mars", "", []string{"X-Client-Region", "JP"},
			schema.Event{PostID: 9, UserID: 1, Action: schema.Like, TimeMs: 1, Region: schema.UnknownRegion}},
		{"PUT", "/v1/posts/9/likes/1?time_ms=1", "", []string{"X-Client-Region", "the moon"},
			schema.Event{PostID: 9, UserID: 1, Action: schema.Like, TimeMs: 1, Region: schema.UnknownRegion}},
		{"POST", "/v1/posts/9/likes?region=de&time_ms=1", `{"user_id":1,"region":"Mars"}`, jsonBody,
			schema.Event{PostID: 9, UserID: 1, Action: schema.Like, TimeMs: 1, Region: schema.UnknownRegion}},
	}
	places := make([]position, len(cases))
	for i, tt := range cases {
		places[i] = r.send(tt.method, tt.path, tt.body, tt.headers...).place(t)
	}
	records := r.consume(len(cases))
	for i, tt := range cases {
		t.Run(fmt.Sprint(tt.method, " ", tt.path, " ", tt.body), func(t *testing.T) {
			rec, e := record(t, records, places[i])
			require.Equal(t, tt.want, e)
			require.Equal(t, fmt.Sprint(tt.want.PostID), string(rec.Key))
			require.Equal(t, schema.PartitionFor(tt.want.PostID, partitions), rec.Partition)
		})
	}
	require.EqualValues(t, 3, r.metric("kudos_producer_region_malformed_total"))
	require.EqualValues(t, len(cases), r.metric("kudos_producer_accepted_total"))
}

func TestAnswerOfALike(t *testing.T) {
	r := start(t, nil)
	partition := schema.PartitionFor(7, partitions)
	for offset := range 2 {
		r.put("/v1/posts/7/likes/9").requireJSON(t, http.StatusAccepted, fmt.Sprintf(`{"partition":%d,"offset":%d}`, partition, offset))
	}
}

// No header is trusted unless an option names it.
func TestNoRegionHeaderIsTrustedByDefault(t *testing.T) {
	r := start(t, nil)
	r.send("PUT", "/v1/posts/7/likes/9", "", "X-Client-Region", "JP", "CF-IPCountry", "JP").place(t)
	_, e := record(t, r.consume(1), position{schema.PartitionFor(7, partitions), 0})
	require.Equal(t, schema.UnknownRegion, e.Region)
	require.False(t, e.RegionMalformed)
}

// The time is that of receipt: what holds the event up later does not move it.
func TestTimeIsStampedAtReceipt(t *testing.T) {
	r := start(t, nil)
	held, release := r.hold()
	before := time.Now().UnixMilli()
	answered := make(chan answerTo, 1)
	go func() { a, _ := r.trySend("PUT", "/v1/posts/7/likes/9", nil); answered <- a }()
	wait(t, held, "the event must reach the broker")
	received := time.Now().UnixMilli()
	require.Eventually(t, func() bool { return time.Now().UnixMilli() > received }, patience, time.Millisecond)
	release()
	at := (<-answered).place(t)
	_, e := record(t, r.consume(1), at)
	require.GreaterOrEqual(t, e.TimeMs, before)
	require.LessOrEqual(t, e.TimeMs, received)

	// In the other routes too.
	for _, a := range []answerTo{
		r.postLikeBody("/v1/posts/7/likes?time_ms=0", `{"user_id":9,"time_ms":0}`), // 0 is no time
		r.postLines("", `{"post_id":7,"user_id":9,"action":"LIKE"}`),
	} {
		require.Equal(t, http.StatusAccepted, a.status, a.body)
	}
	after := time.Now().UnixMilli()
	for _, rec := range r.consume(3)[1:] {
		var e schema.Event
		require.NoError(t, schema.DecodeEvent(rec.Key, rec.Value, &e))
		require.GreaterOrEqual(t, e.TimeMs, received)
		require.LessOrEqual(t, e.TimeMs, after)
	}
}

// A client that repeats its request with the time it had the first time, or was told,
// says nothing new: the event keeps its place however late it comes.
func TestRepeatedRequestKeepsItsPlace(t *testing.T) {
	r := start(t, nil)
	first := r.put("/v1/posts/7/likes/9?time_ms=1700000000000").place(t)
	r.send("DELETE", "/v1/posts/7/likes/9?time_ms=1700000000500", "").place(t)
	again := r.put("/v1/posts/7/likes/9?time_ms=1700000000000").place(t)
	records := r.consume(3)
	rec1, e1 := record(t, records, first)
	rec2, e2 := record(t, records, again)
	require.Equal(t, e1, e2)
	require.Equal(t, rec1.Value, rec2.Value)
}

func TestTheBodyOfPutAndDeleteIsNotRead(t *testing.T) {
	r := start(t, nil)
	r.send("PUT", "/v1/posts/7/likes/9", "what is this", "Content-Type", "text/plain").place(t)
	r.send("DELETE", "/v1/posts/7/likes/9", `{"user_id":1}`, "Content-Type", "application/json").place(t)
}
