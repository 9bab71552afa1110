package producer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
)

// line is a like in NDJSON.
func line(post, user int) string {
	return fmt.Sprintf(`{"post_id":%d,"user_id":%d,"action":"LIKE","time_ms":1}`, post, user)
}

// answeredLine is a line of a batch's answer, whichever it is.
type answeredLine struct {
	Line              int
	Partition, Offset *int64
	Field             string
	Reason, Detail    string
}

type answeredBatch struct {
	Accepted, Rejected, Failed int
	FirstUnacceptedLine        *int `json:"first_unaccepted_line"`
	Lines                      []answeredLine
	Type, Detail               string
	TimeMs                     int64 `json:"time_ms"`
}

func decodeBatch(t *testing.T, a answerTo) (b answeredBatch) {
	t.Helper()
	a.decode(t, &b)
	return b
}

func TestBatch(t *testing.T) {
	r := start(t, nil)
	p := schema.PartitionFor(7, partitions)
	const known = "is not known here; known are post_id, postId, user_id, userId, action, time_ms, timeMs, region"
	lines := []string{
		`{"post_id":7,"user_id":1,"action":"LIKE","time_ms":5}`,
		`{"post_id":7,"user_id":0,"action":"LIKE"}`,
		``,
		`  {"postId":"7","userId":"2","action":false,"timeMs":"6","region":"de"}` + "\r",
		`hello`,
		`{"post_id":7,"user_id":3,"action":"like"}`,
		`{"post_id":7,"user_id":3,"action":"LIKE","time":1}`,
		"\x08\x07\x10\x09\x18\x01", // a like in Protobuf
		"\uFEFF" + `{"post_id":7,"user_id":3,"action":"LIKE"}`,
		`{"user_id":3,"action":"LIKE"}`,
		`{"post_id":7,"user_id":3,"action":"LIKE","time_ms":-1}`,
		`{"post_id":7,"user_id":4,"action":"DISLIKE","region":"Mars"}`,
		`["post_id",7]`,
		`null`,
		`{"post_id":7,"user_id":5,"action":true}`, // and no line end
	}
	const rejected = `
		{"line":2,"field":"user_id","reason":"zero_id","detail":"is missing or 0"},
		%s
		{"line":5,"field":"line","reason":"undecodable","detail":"is not JSON: invalid character 'h' looking for beginning of value"},
		{"line":6,"field":"action","reason":"unknown_action","detail":"is missing or unknown; LIKE, UNLIKE and DISLIKE are known"},
		{"line":7,"field":"time","reason":"unknown_field","detail":"` + known + `"},
		{"line":8,"field":"line","reason":"undecodable","detail":"is not JSON: invalid character '\\b' looking for beginning of value"},
		{"line":9,"field":"line","reason":"undecodable","detail":"is not JSON: invalid character 'ï' looking for beginning of value"},
		{"line":10,"field":"post_id","reason":"zero_id","detail":"is missing or 0"},
		{"line":11,"field":"time_ms","reason":"negative_time","detail":"is negative"},
		%s
		{"line":13,"field":"line","reason":"undecodable","detail":"is not a JSON object"},
		{"line":14,"field":"line","reason":"undecodable","detail":"is not a JSON object"}`

	r.postLines("?time_ms=77&region=jp", lines...).requireJSON(t, http.StatusAccepted, fmt.Sprintf(`{"accepted":4,"rejected":10,"failed":0,"lines":[
		{"line":1,"partition":%[1]d,"offset":0},`+
		fmt.Sprintf(rejected, `{"line":4,"partition":%[1]d,"offset":1},`, `{"line":12,"partition":%[1]d,"offset":2},`)+`,
		{"line":15,"partition":%[1]d,"offset":3}]}`, p))

	records := r.consume(4)
	for offset, want := range []schema.Event{
		{PostID: 7, UserID: 1, Action: schema.Like, TimeMs: 5, Region: schema.Region{'J', 'P'}},
		{PostID: 7, UserID: 2, Action: schema.Unlike, TimeMs: 6, Region: schema.Region{'D', 'E'}},
		{PostID: 7, UserID: 4, Action: schema.Dislike, TimeMs: 77, Region: schema.UnknownRegion},
		{PostID: 7, UserID: 5, Action: schema.Like, TimeMs: 77, Region: schema.Region{'J', 'P'}},
	} {
		_, e := record(t, records, position{p, int64(offset)})
		require.Equal(t, want, e)
	}
	require.EqualValues(t, 5, r.metric("kudos_producer_rejected_total", "reason", "undecodable"))
	require.EqualValues(t, 4, r.metric("kudos_producer_accepted_total"))
	require.EqualValues(t, 1, r.metric("kudos_producer_region_malformed_total"))

	r.postLines("?lines=errors", lines...).requireJSON(t, http.StatusAccepted,
		`{"accepted":4,"rejected":10,"failed":0,"lines":[`+fmt.Sprintf(rejected, "", "")+`]}`)
}

func TestBatchPathMayBeEscaped(t *testing.T) {
	r := start(t, nil)
	for _, path := range []string{"/v1/likes:batch", "/v1/likes%3Abatch", "/v1/likes%3abatch?lines=all"} {
		a := r.send("POST", path, line(7, 9), "Content-Type", "application/jsonl")
		require.Equal(t, http.StatusAccepted, a.status, a.body)
	}
}

func TestBatchOfBadLinesOnly(t *testing.T) {
	r := start(t, nil)
	r.postLines("", `{}`, `x`).requireJSON(t, http.StatusBadRequest, `{
		"type":"urn:kudos:problem:invalid-request","title":"The request is not valid","status":400,"detail":"no line is an event; lines tells why",
		"accepted":0,"rejected":2,"failed":0,"lines":[
			{"line":1,"field":"post_id","reason":"zero_id","detail":"is missing or 0"},
			{"line":2,"field":"line","reason":"undecodable","detail":"is not JSON: invalid character 'x' looking for beginning of value"}]}`)
	for _, body := range []string{"", "\n", "\r\n \n\n"} {
		r.postLines("", body).requireJSON(t, http.StatusBadRequest, invalid("body", "empty", "has no line"))
	}
	r.postLines("?lines=few&time_ms=x", line(7, 9)).requireJSON(t, http.StatusBadRequest, `{
		"type":"urn:kudos:problem:invalid-request","title":"The request is not valid","status":400,
		"detail":"time_ms: \"x\" is not a whole number in range","errors":[
			{"field":"time_ms","reason":"undecodable","detail":"\"x\" is not a whole number in range"},
			{"field":"lines","reason":"unknown_value","detail":"is neither all nor errors"}]}`)
	require.Zero(t, r.written())
}

// A line that is too long is dropped as it comes, and its neighbours are taken.
func TestBatchLineTooLong(t *testing.T) {
	r := start(t, nil)
	fill := func(size int) string {
		head, tail := `{"post_id":7,"user_id":9,"action":"LIKE","region":"`, `"}`
		return head + strings.Repeat("x", size-len(head)-len(tail)) + tail
	}
	b := decodeBatch(t, r.postLines("", line(7, 1), fill(schema.MaxEventBytes), fill(schema.MaxEventBytes+1), fill(100_000), line(7, 2), fill(schema.MaxEventBytes)+"\r"))
	require.Equal(t, [3]int{4, 2, 0}, [3]int{b.Accepted, b.Rejected, b.Failed})
	require.Len(t, b.Lines, 6)
	for _, i := range []int{2, 3} {
		require.Equal(t, i+1, b.Lines[i].Line)
		require.Equal(t, "line", b.Lines[i].Field)
		require.Equal(t, "over_size", b.Lines[i].Reason)
	}
}

func TestBatchLimits(t *testing.T) {
	r := start(t, func(o *Options) { o.MaxBatchLines, o.MaxBatchBytes, o.MaxBodyBytes = 3, 300, 100 })
	tooLarge := func(detail string) string {
		return `{"type":"urn:kudos:problem:too-large","title":"The request is too large","status":413,"detail":"` + detail + `; nothing of it was written"}`
	}
	r.postLines("", line(1, 1), "", line(1, 2), "x", line(1, 3)).requireJSON(t, http.StatusRequestEntityTooLarge, tooLarge("the batch has more than 3 lines"))
	r.postLines("", line(1, 1), strings.Repeat(" ", 300)).requireJSON(t, http.StatusRequestEntityTooLarge, tooLarge("the body has more than 300 bytes"))
	r.postLikeBody("/v1/posts/7/likes", `{"user_id":9}`+strings.Repeat(" ", 100)).
		requireJSON(t, http.StatusRequestEntityTooLarge, tooLarge("the body has more than 100 bytes"))
	require.Zero(t, r.written(), "what is refused whole leaves nothing behind")

	a := r.postLines("", line(1, 1), "", line(1, 2), "", line(1, 3), "")
	require.Equal(t, http.StatusAccepted, a.status, "empty lines are not counted: %s", a.body)
}

// A full batch on one post stays in order, and in record batches that the topic takes;
// each is asked to be on every in-sync replica, and to be written once.
func TestFullBatch(t *testing.T) {
	// Long enough that on the slowest machine a record batch is sent because it is full.
	r := start(t, func(o *Options) { o.Linger = 200 * time.Millisecond })
	var mu sync.Mutex
	largest, unsafe := 0, 0
	r.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		mu.Lock()
		defer mu.Unlock()
		produce := req.(*kmsg.ProduceRequest)
		for _, topic := range produce.Topics {
			for _, p := range topic.Partitions {
				var batch kmsg.RecordBatch
				if err := batch.ReadFrom(p.Records); err != nil || produce.Acks != -1 || batch.ProducerID < 0 {
					unsafe++
				}
				largest = max(largest, uncompressedSize(t, &batch))
			}
		}
		return nil, nil, false
	})
	const n = 10_000
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"post_id":18446744073709551615,"user_id":%d,"action":"LIKE","time_ms":1700000000000,"region":"GB-ENG"}`, 1<<63+uint64(i))
	}
	a := r.postLines("", lines...)
	require.Equal(t, http.StatusAccepted, a.status)
	b := decodeBatch(t, a)
	require.Equal(t, n, b.Accepted)
	require.Len(t, b.Lines, n)
	for i, l := range b.Lines {
		require.Equal(t, i+1, l.Line)
		require.EqualValues(t, i, *l.Offset, "in the order of the lines")
	}
	for i, rec := range r.consume(n) {
		var e schema.Event
		require.NoError(t, schema.DecodeEvent(rec.Key, rec.Value, &e))
		require.Equal(t, 1<<63+uint64(i), e.UserID)
	}
	mu.Lock()
	defer mu.Unlock()
	require.Zero(t, unsafe, "batches without acks=all or without idempotence")
	require.Greater(t, largest, schema.LikesMaxMessageBytes/2, "the batches are well filled")
	require.LessOrEqual(t, largest, schema.LikesMaxMessageBytes, "a batch that compresses badly would be refused")
}

// uncompressedSize is what the batch takes if its records are not compressed.
func uncompressedSize(t *testing.T, batch *kmsg.RecordBatch) int {
	const overhead = 61 // a record batch without its records
	records, err := kgo.DefaultDecompressor().Decompress(batch.Records, kgo.CompressionCodecType(batch.Attributes&7))
	if err != nil {
		t.Errorf("a record batch cannot be read: %v", err) // not the test's goroutine
	}
	return overhead + len(records)
}

// Kafka fails for some of the lines: the answer says which, and from where on to
// repeat; the others are as good as ever.
func TestKafkaFailsMidway(t *testing.T) {
	r := start(t, nil)
	bad := schema.PartitionFor(2, partitions)
	require.NotEqual(t, bad, schema.PartitionFor(1, partitions), "the test needs two partitions")
	r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: schema.TopicLikes, Partitions: []int32{bad}, Err: kerr.TopicAuthorizationFailed, Count: -1})

	lines := []string{line(1, 1), `{}`, line(2, 2), line(1, 3), line(2, 4)}
	a := r.postLines("?time_ms=99", lines...)
	good := schema.PartitionFor(1, partitions)
	const failed = `"reason":"not_acknowledged","detail":"Kafka answered TOPIC_AUTHORIZATION_FAILED: Not authorized to access topics: [Topic authorization failed.]"`
	const head = `"type":"urn:kudos:problem:not-acknowledged","title":"Kafka has not acknowledged","status":503,"time_ms":99,
		"detail":"unknown: not acknowledged, safe to repeat (with this time_ms it keeps its place): Kafka answered TOPIC_AUTHORIZATION_FAILED: Not authorized to access topics: [Topic authorization failed.]"`
	a.requireJSON(t, http.StatusServiceUnavailable, fmt.Sprintf(`{`+head+`,
		"accepted":2,"rejected":1,"failed":2,"first_unaccepted_line":3,"lines":[
			{"line":1,"partition":%[1]d,"offset":0},
			{"line":2,"field":"post_id","reason":"zero_id","detail":"is missing or 0"},
			{"line":3,`+failed+`},
			{"line":4,"partition":%[1]d,"offset":1},
			{"line":5,`+failed+`}]}`, good))
	require.Equal(t, "1", a.header.Get("Retry-After"))
	require.EqualValues(t, 2, r.written())

	b := decodeBatch(t, r.postLines("?lines=errors", lines...))
	require.Len(t, b.Lines, 3, "lines 2, 3 and 5")
	require.Equal(t, 3, *b.FirstUnacceptedLine)

	a = r.put("/v1/posts/2/likes/9?time_ms=99")
	a.requireJSON(t, http.StatusServiceUnavailable, `{`+head+`}`)
	require.Equal(t, "1", a.header.Get("Retry-After"))
	require.EqualValues(t, 5, r.metric("kudos_producer_unacknowledged_total"))
}

// Whatever a line holds, it is answered for by its number, and no line is lost.
func FuzzReadBatch(f *testing.F) {
	f.Add([]byte(line(1, 2) + "\n" + line(3, 4)))
	f.Add([]byte("\n\r\n{}\n" + strings.Repeat("x", schema.MaxEventBytes+9) + "\n{\"post_id\":\"1\",\"user_id\":2,\"action\":true}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		fb := fallback{timeMs: 7, region: schema.UnknownRegion}
		b, err := readBatch(bytes.NewReader(body), 100, &fb)
		if err != nil {
			require.ErrorIs(t, err, errTooManyLines)
			return
		}
		byNumber := map[int]*lineResult{}
		for i := range b.lines {
			byNumber[b.lines[i].Line] = &b.lines[i]
		}
		events := 0
		for i, text := range bytes.Split(body, []byte("\n")) {
			result := byNumber[i+1]
			if len(bytes.TrimSpace(text)) == 0 {
				require.True(t, result == nil || result.Reason == string(schema.OverSize), "line %d is empty", i+1)
				continue
			}
			require.NotNil(t, result, "line %d", i+1)
			if result.fieldError != nil {
				require.NotEmpty(t, result.Reason)
				continue
			}
			require.True(t, json.Valid(text), "line %d", i+1)
			require.NoError(t, b.events[events].Check())
			require.Equal(t, i+1, b.lines[b.lineOf[events]].Line)
			events++
		}
		require.Len(t, b.events, events)
	})
}
