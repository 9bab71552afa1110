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

	"kudos/dev/testkit/apikit"
	"kudos/schema"
)

func line(post, user int) string {
	return fmt.Sprintf(`{"post_id":%d,"user_id":%d,"action":"LIKE","time_ms":1}`, post, user)
}

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
	TimeMs                     int64 `json:"time_ms"`
}

func decodeBatch(a apikit.Answer, accepted, rejected, failed int) (b answeredBatch) {
	a.T.Helper()
	a.Decode(&b)
	require.Equal(a.T, [3]int{accepted, rejected, failed}, [3]int{b.Accepted, b.Rejected, b.Failed}, a.Body)
	return b
}

func TestBatch(t *testing.T) {
	r := start(t, nil)
	p := schema.PartitionFor(7, partitions)
	const notJSON = "is not JSON: invalid character "
	const known = "is unknown; allowed: post_id, postId, user_id, userId, action, time_ms, timeMs, region"
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
		`{"post_id":7,"user_id":3,"action":"LIKE","region":{}}`,
		`{"post_id":7,"user_id":3,"user_id":3,"action":"LIKE"}`,
		`{"post_id":7,"user_id":5,"action":"LI\u004bE"}`, // without a line ending
	}
	const rejected = `
		{"line":2,"field":"user_id","reason":"zero_id","detail":"is missing or 0"},
		%s
		{"line":5,"field":"line","reason":"undecodable","detail":"` + notJSON + `'h' looking for beginning of value"},
		{"line":6,"field":"action","reason":"unknown_action",
			"detail":"is missing or unknown; LIKE, UNLIKE and DISLIKE are known"},
		{"line":7,"field":"time","reason":"unknown_field","detail":"` + known + `"},
		{"line":8,"field":"line","reason":"undecodable","detail":"` + notJSON + `'\\b' looking for beginning of value"},
		{"line":9,"field":"line","reason":"undecodable","detail":"` + notJSON + `'ï' looking for beginning of value"},
		{"line":10,"field":"post_id","reason":"zero_id","detail":"is missing or 0"},
		{"line":11,"field":"time_ms","reason":"negative_time","detail":"is negative"},
		%s
		{"line":13,"field":"line","reason":"undecodable","detail":"is not a JSON object"},
		{"line":14,"field":"line","reason":"undecodable","detail":"is not a JSON object"},
		{"line":15,"field":"region","reason":"undecodable","detail":"is not a string"},
		{"line":16,"field":"user_id","reason":"repeated","detail":"is given more than once"}`

	taken := func(line, offset int) string {
		return fmt.Sprintf(`{"line":%d,"partition":%d,"offset":%d}`, line, p, offset)
	}
	r.postLines("?time_ms=77&region=jp", lines...).RequireJSON(accepted,
		`{"accepted":4,"rejected":12,"failed":0,"lines":[`+taken(1, 0)+","+
			fmt.Sprintf(rejected, taken(4, 1)+",", taken(12, 2)+",")+","+taken(17, 3)+`]}`)

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
	r.requireCount(6, "rejected_total", "reason", "undecodable")
	r.requireCount(4, "accepted_total")
	r.requireCount(1, "region_malformed_total")

	r.postLines("?lines=errors", lines...).RequireJSON(accepted,
		`{"accepted":4,"rejected":12,"failed":0,"lines":[`+fmt.Sprintf(rejected, "", "")+`]}`)
}

func TestBatchPathMayBeEscaped(t *testing.T) {
	r := start(t, nil)
	for _, path := range []string{batch, "/v1/likes%3Abatch", "/v1/likes%3abatch?lines=all"} {
		r.Send("POST", path, line(7, 9), "Content-Type", "application/jsonl").Require(accepted)
	}
}

func TestBatchOfBadLinesOnly(t *testing.T) {
	r := start(t, nil)
	const slug, title = "invalid-request", "The request is not valid"
	r.postLines("", `{}`, `x`).RequireJSON(http.StatusBadRequest,
		apikit.Problem(400, slug, title, "no line is a valid event; see lines", `
			"accepted":0,"rejected":2,"failed":0,"lines":[
			{"line":1,"field":"post_id","reason":"zero_id","detail":"is missing or 0"},
			{"line":2,"field":"line","reason":"undecodable",
				"detail":"is not JSON: invalid character 'x' looking for beginning of value"}]`))
	for _, body := range []string{"", "\n", "\r\n \n\n"} {
		r.postLines("", body).RequireInvalid("body", "empty", "has no lines")
	}
	const noNumber = `"x" is not a whole number in range`
	r.postLines("?lines=few&time_ms=x", line(7, 9)).RequireJSON(http.StatusBadRequest,
		apikit.Problem(400, slug, title, "time_ms: "+noNumber, apikit.Errors(
			apikit.FieldError("time_ms", "undecodable", noNumber),
			apikit.FieldError("lines", "unknown_value", "must be all or errors"))))
	require.Zero(t, r.written())
}

func TestBatchLineTooLong(t *testing.T) {
	r := start(t, nil)
	fill := func(size int) string {
		head, tail := `{"post_id":7,"user_id":9,"action":"LIKE","region":"`, `"}`
		return head + strings.Repeat("x", size-len(head)-len(tail)) + tail
	}
	const most = schema.MaxEventBytes
	a := r.postLines("", line(7, 1), fill(most), fill(most+1), fill(100_000), line(7, 2), fill(most)+"\r")
	b := decodeBatch(a, 4, 2, 0)
	require.Len(t, b.Lines, 6)
	for _, l := range b.Lines[2:4] {
		require.Equal(t, []string{"line", "over_size"}, []string{l.Field, l.Reason})
	}
	require.Equal(t, 3, b.Lines[2].Line)
	require.Equal(t, 4, b.Lines[3].Line)
}

func TestBatchLimits(t *testing.T) {
	r := start(t, func(o *Options) { o.MaxBatchLines, o.MaxBatchBytes, o.MaxBodyBytes = 3, 300, 100 })
	spaces := strings.Repeat(" ", 300)
	for detail, a := range map[string]apikit.Answer{
		"the batch has more than 3 lines":  r.postLines("", line(1, 1), "", line(1, 2), "x", line(1, 3)),
		"the body has more than 300 bytes": r.postLines("", line(1, 1), spaces),
		"the body has more than 100 bytes": r.postLike(likes, `{"user_id":9}`+spaces[:100]),
	} {
		a.RequireJSON(http.StatusRequestEntityTooLarge,
			apikit.Problem(413, "too-large", "The request is too large", detail+"; nothing was written"))
	}
	require.Zero(t, r.written(), "a rejected request must write nothing")
	r.postLines("", line(1, 1), "", line(1, 2), "", line(1, 3), "").Require(accepted) // empty lines are not counted
}

// A full batch for one post stays in order, in record batches within the topic's limit, acks=all and idempotent.
func TestFullBatch(t *testing.T) {
	// So long that on the slowest machine record batches are sent because they are full.
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
		lines[i] = fmt.Sprintf(`{"post_id":18446744073709551615,"user_id":%d,"action":"LIKE",`+
			`"time_ms":1700000000000,"region":"GB-ENG"}`, 1<<63+uint64(i))
	}
	b := decodeBatch(r.postLines("", lines...).Require(accepted), n, 0, 0)
	require.Len(t, b.Lines, n)
	for i, l := range b.Lines {
		require.Equal(t, i+1, l.Line)
		require.EqualValues(t, i, *l.Offset, "offsets must follow the order of the lines")
	}
	for i, rec := range r.consume(n) {
		require.Equal(t, 1<<63+uint64(i), apikit.Event(t, rec).UserID)
	}
	mu.Lock()
	defer mu.Unlock()
	require.Zero(t, unsafe, "batches without acks=all or without idempotence")
	require.Greater(t, largest, schema.LikesMaxMessageBytes/2, "record batches must be well filled")
	require.LessOrEqual(t, largest, schema.LikesMaxMessageBytes, "Kafka would reject a batch that compresses badly")
}

func uncompressedSize(t testing.TB, batch *kmsg.RecordBatch) int {
	const overhead = 61 // a record batch without its records
	records, err := kgo.DefaultDecompressor().Decompress(batch.Records, kgo.CompressionCodecType(batch.Attributes&7))
	if err != nil {
		t.Errorf("a record batch cannot be read: %v", err) // Errorf, since this is not the test's goroutine
	}
	return overhead + len(records)
}

// If Kafka fails for some lines, the response says which, and from which line to repeat. The others are accepted.
func TestKafkaFailsMidway(t *testing.T) {
	r := start(t, nil)
	good, bad := schema.PartitionFor(1, partitions), schema.PartitionFor(2, partitions)
	require.NotEqual(t, bad, good, "the test needs two partitions")
	r.cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: schema.TopicLikes, Partitions: []int32{bad},
		Err: kerr.TopicAuthorizationFailed, Count: -1,
	})

	lines := []string{line(1, 1), `{}`, line(2, 2), line(1, 3), line(2, 4)}
	const why = "Kafka answered TOPIC_AUTHORIZATION_FAILED: " +
		"Not authorized to access topics: [Topic authorization failed.]"
	const failed = `"reason":"not_acknowledged","detail":"` + why + `"`
	r.postLines("?time_ms=99", lines...).RequireJSON(503, notAcknowledged(99, why, fmt.Sprintf(`
		"accepted":2,"rejected":1,"failed":2,"first_unaccepted_line":3,"lines":[
			{"line":1,"partition":%[1]d,"offset":0},
			{"line":2,"field":"post_id","reason":"zero_id","detail":"is missing or 0"},
			{"line":3,`+failed+`},
			{"line":4,"partition":%[1]d,"offset":1},
			{"line":5,`+failed+`}]`, good))).RequireHeader("Retry-After", "1")
	require.EqualValues(t, 2, r.written())

	b := decodeBatch(r.postLines("?lines=errors", lines...), 2, 1, 2)
	require.Len(t, b.Lines, 3, "lines 2, 3 and 5")
	require.Equal(t, 3, *b.FirstUnacceptedLine)

	r.put("/v1/posts/2/likes/9?time_ms=99").RequireJSON(503, notAcknowledged(99, why)).RequireHeader("Retry-After", "1")
	r.requireCount(5, "unacknowledged_total")
}

// Whatever a line contains, it is reported by its number, and no line is lost.
func FuzzParseBatch(f *testing.F) {
	f.Add([]byte(line(1, 2) + "\n" + line(3, 4)))
	f.Add([]byte("\n\r\n{}\n" + strings.Repeat("x", schema.MaxEventBytes+9) +
		"\n{\"post_id\":\"1\",\"user_id\":2,\"action\":true}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		lines, ok := parseBatch(body, 100, &schema.Event{TimeMs: 7})
		if !ok {
			require.Greater(t, bytes.Count(body, []byte("\n"))+1, 100)
			return
		}
		byNumber := map[int]*batchLine{}
		for i := range lines {
			byNumber[lines[i].Line] = &lines[i]
		}
		require.Len(t, byNumber, len(lines))
		for i, text := range bytes.Split(body, []byte("\n")) {
			line := byNumber[i+1]
			delete(byNumber, i+1)
			if len(bytes.TrimSpace(text)) == 0 {
				require.True(t, line == nil || line.Reason == string(schema.OverSize), "line %d is empty", i+1)
				continue
			}
			require.NotNil(t, line, "line %d", i+1)
			if line.fieldError != nil {
				require.NotEmpty(t, line.Reason)
				continue
			}
			require.True(t, json.Valid(text), "line %d", i+1)
			require.NoError(t, line.event.Check())
		}
		require.Empty(t, byNumber)
	})
}
