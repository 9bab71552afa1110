package importer

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
	"kudos/ops/progress"
	"kudos/schema"
	"kudos/stream/kafka"
)

func broker(t *testing.T, opts ...kfake.Opt) (*testkit.Cluster, kafka.Options) {
	t.Helper()
	return apikit.Broker(t, 4, []string{schema.TopicLikes}, opts...)
}

func importText(t *testing.T, kafka kafka.Options, opts Options, text string) (Summary, [][]string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "input")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return importFrom(t, kafka, opts, path, nil)
}

func importFrom(
	t *testing.T, kafka kafka.Options, opts Options, path string, stdin io.Reader,
) (Summary, [][]string, error) {
	t.Helper()
	src, err := Open(t.Context(), path, stdin)
	require.NoError(t, err)
	defer src.Close()
	rejects := NewRejects(filepath.Join(t.TempDir(), "rejects"))
	summary, err := New(opts, kafka, testkit.Log()).Run(t.Context(), src, rejects)
	require.Equal(t, rejects.Written(), summary.RejectsFile)
	if summary.RejectsFile == "" {
		require.NoFileExists(t, rejects.path, "an import without rejects must leave no file")
		return summary, nil, err
	}
	file, openErr := os.Open(rejects.path)
	require.NoError(t, openErr)
	defer file.Close()
	rows, readErr := csv.NewReader(file).ReadAll()
	require.NoError(t, readErr)
	require.Equal(t, []string{"line", "reason", "original"}, rows[0])
	return summary, rows[1:], err
}

// readLikes returns the events in likes, by partition and offset. It requires each to be in its partition.
func readLikes(t *testing.T, options kafka.Options) (events []schema.Event) {
	t.Helper()
	for _, rec := range apikit.Likes(t, options) {
		require.NotEqual(t, byte('{'), rec.Value[0], "events are written as Protobuf")
		e := apikit.Event(t, rec)
		require.Equal(t, string(schema.AppendPostKey(nil, e.PostID)), string(rec.Key))
		require.Equal(t, schema.PartitionFor(e.PostID, 4), rec.Partition)
		events = append(events, e)
	}
	return events
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func TestEveryFormGivesTheSameEvents(t *testing.T) {
	br := schema.Region{'B', 'R', '-', 'S', 'P'}
	want := []schema.Event{
		{PostID: 7, UserID: 1, Action: schema.Like, TimeMs: 1000, Region: schema.Region{'U', 'S'}},
		{PostID: 7, UserID: 18446744073709551615, Action: schema.Dislike, TimeMs: 2000, Region: br},
		{PostID: 7, UserID: 1, Action: schema.Unlike, TimeMs: 3000, Region: schema.UnknownRegion},
		{PostID: 7, UserID: 2, Action: schema.Like, Region: schema.UnknownRegion},
	}
	plain := "post_id,user_id,action,time_ms,region\n" +
		"7,1,LIKE,1000,us\n7,18446744073709551615,DISLIKE,2000,BR-SP\n7,1,UNLIKE,3000,\n7,2,true,,atlantis\n"
	for name, c := range map[string]struct {
		text   string
		format Format
	}{
		"csv": {plain, CSV},
		"csv, other order, quotes, spaces, CRLF, byte order mark, empty lines, no newline at the end": {
			"\xef\xbb\xbfAction,\"region\", time_ms,user_id,post_id\r\n\r\n" +
				"LIKE,\"us\",1000,1,7\r\nDISLIKE, BR-SP ,2000,18446744073709551615,7\r\n  \r\n" +
				"false,,3000,1,7\r\ntrue,atlantis,,2,\"7\"", CSV},
		"ndjson": {
			`{"post_id":7,"user_id":1,"action":"LIKE","time_ms":1000,"region":"us"}` + "\n" +
				` {"post_id":"7","user_id":"18446744073709551615","action":"DISLIKE","time_ms":2000,"region":"BR-SP"}` +
				"\n\n" + `{"post_id":7,"user_id":1,"action":false,"time_ms":3000}` + "\n" +
				`{"post_id":7,"user_id":2,"action":true,"region":"atlantis"}`, NDJSON},
		"csv, compressed": {gzipped(t, plain), CSV},
	} {
		t.Run(name, func(t *testing.T) {
			_, kafka := broker(t)
			summary, rejects, err := importText(t, kafka, Options{}, c.text)
			require.NoError(t, err)
			require.Empty(t, rejects)
			require.Equal(t, want, readLikes(t, kafka))

			require.Positive(t, summary.Seconds)
			summary.Source, summary.Seconds = "", 0
			whole := Summary{Format: c.format, Complete: true, Lines: 4, Acknowledged: 4, UnknownRegions: 1}
			require.Equal(t, whole, summary)
		})
	}
}

func TestTimeAndRegionAreOptional(t *testing.T) {
	_, kafka := broker(t)
	_, _, err := importText(t, kafka, Options{}, "user_id,action,post_id\n1,LIKE,7\n")
	require.NoError(t, err)
	want := schema.Event{PostID: 7, UserID: 1, Action: schema.Like, Region: schema.UnknownRegion}
	require.Equal(t, []schema.Event{want}, readLikes(t, kafka))
}

func TestRejectedLinesAreNamedAndTheOthersArrive(t *testing.T) {
	_, kafka := broker(t)
	type rows [][2]string // lines, and part of why each is rejected
	for name, c := range map[string]struct {
		head string
		rows rows
	}{
		"csv": {"post_id,user_id,action,time_ms\n", rows{
			{"7,1,LIKE,1000", ""},
			{"seven,1,LIKE,1000", `post_id: "seven" is not a whole number`},
			{"7,-1,LIKE,1000", `user_id: "-1" is not a whole number`},
			{"7,1,like,1000", `action: "like" is unknown; must be LIKE`},
			{"7,1,1,1000", `action: "1" is unknown; must be LIKE`},
			{"7,1,LIKE,yesterday", `time_ms: "yesterday"`},
			{"7,1,LIKE,-5", `time_ms: is negative`},
			{"0,1,LIKE,1000", `post_id: is missing or 0`},
			{"7,1,LIKE", `has 3 fields, the header has 4`},
			{"7,1,LIKE,1000,US", `has 5 fields, the header has 4`},
			{`7,"1,LIKE,1000`, `is not CSV`}, // an unclosed quote spoils only this line
			{strings.Repeat("9", 10_000) + ",1,LIKE,1000", `is longer than 4096 bytes`},
			{"", ""},
			{"7,2,LIKE,1000", ""},
		}},
		"ndjson": {"", rows{
			{`{"post_id":7,"user_id":1,"action":"LIKE"}`, ""},
			{`{"post_id":7,"user_id":1,"action":"LOVE"}`, "action: is missing or unknown"},
			{`{"post_id":7,"action":"LIKE"}`, "user_id: is missing or 0"},
			{`7,1,LIKE`, "is not a JSON object"},
			{`{"post_id":7,`, "not JSON"},
			{`{"post_id":7,"user_id":2,"action":"LIKE"}`, ""},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			text := c.head
			for _, row := range c.rows {
				text += row[0] + "\n"
			}
			summary, rejects, err := importText(t, kafka, Options{}, text)
			number := strings.Count(c.head, "\n")
			for _, row := range c.rows {
				number++
				if row[1] == "" {
					continue
				}
				require.NotEmpty(t, rejects, row)
				require.Equal(t, fmt.Sprint(number), rejects[0][0])
				require.Contains(t, rejects[0][1], row[1])
				require.True(t, strings.HasPrefix(row[0], rejects[0][2]), "want the original line: %v", row)
				rejects = rejects[1:]
			}
			require.Empty(t, rejects)
			require.EqualValues(t, 2, summary.Acknowledged)
			wrong := fmt.Sprintf("%d of %d lines were rejected", summary.Rejected, summary.Rejected+2)
			require.ErrorContains(t, err, wrong)
			require.ErrorContains(t, err, summary.RejectsFile)
		})
	}
}

func TestImportFails(t *testing.T) {
	const header, like = "post_id,user_id,action\n", "7,1,LIKE\n"
	cluster, kafka := broker(t, kfake.AllowAutoTopicCreation()) // which an import does not use
	fails := func(text string, wants ...string) {
		t.Helper()
		_, _, err := importText(t, kafka, Options{}, text)
		for _, want := range wants {
			require.ErrorContains(t, err, want)
		}
	}
	fails("", "is empty; CSV starts with a header")
	fails(like, `not a header of the columns post_id`)
	fails("post_id,user_id\n", "lacks the column action")
	fails("post_id,user_id,action,tim\n", `"tim" is not one of them`)
	fails("post_id,user_id,action,post_id\n", "column post_id twice")

	path := filepath.Join(t.TempDir(), "input")
	require.NoError(t, os.WriteFile(path, []byte(header+"x,1,LIKE\n"), 0o600))
	src, err := Open(t.Context(), path, nil)
	require.NoError(t, err)
	defer src.Close()
	unwritable := NewRejects(filepath.Join(t.TempDir(), "no", "directory"))
	_, err = New(Options{}, kafka, testkit.Log()).Run(t.Context(), src, unwritable)
	require.ErrorContains(t, err, "--rejects")

	require.NoError(t, cluster.DeleteTopic(schema.TopicLikes))
	fails(header+like, `topic "likes" does not exist`, "kudos topics apply")
	cluster.Close()
	kafka.RequestTimeout = time.Second
	fails(header+like, kafka.Brokers[0])
}

func TestFormatCanBeForced(t *testing.T) {
	_, kafka := broker(t)
	_, rejects, err := importText(t, kafka, Options{Format: NDJSON}, "post_id,user_id,action\n")
	require.ErrorContains(t, err, "1 of 1 lines were rejected")
	require.Equal(t, [][]string{{"1", "is not a JSON object", "post_id,user_id,action"}}, rejects)
	_, err = ParseFormat("xml")
	require.ErrorContains(t, err, "not one of auto, csv, ndjson")
}

func TestOrderOfAPostIsKeptAndBatchesFit(t *testing.T) {
	cluster, kafka := broker(t)
	largest := 0
	// Kafka is slower than the input on any machine, so batches become full.
	waiting := make(chan struct{})
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		select {
		case <-waiting:
		case <-t.Context().Done():
		}
		for _, topic := range req.(*kmsg.ProduceRequest).Topics {
			for _, partition := range topic.Partitions {
				largest = max(largest, len(partition.Records))
			}
		}
		return nil, nil, false
	})
	const events = 60_000 // more than are buffered
	var text strings.Builder
	text.WriteString("post_id,user_id,action,time_ms\n")
	random := rand.New(rand.NewPCG(1, 2))
	want := map[uint64][]uint64{} // users by post, in order
	for range events {
		post, user := random.Uint64N(9)+1, random.Uint64()|1
		want[post] = append(want[post], user)
		fmt.Fprintf(&text, "%d,%d,LIKE,%d\n", post, user, random.Int64N(1<<40)+1)
	}
	half := text.Len() / 2
	first, rest := strings.NewReader(text.String()[:half]), strings.NewReader(text.String()[half:])
	input := io.MultiReader(first, &signal{atFirstRead: waiting}, rest)
	summary, _, err := importFrom(t, kafka, Options{}, "-", input)
	require.NoError(t, err)
	require.EqualValues(t, events, summary.Acknowledged)
	got := map[uint64][]uint64{}
	for _, e := range readLikes(t, kafka) {
		got[e.PostID] = append(got[e.PostID], e.UserID)
	}
	require.Equal(t, want, got)
	require.LessOrEqual(t, largest, schema.LikesMaxMessageBytes, "bytes of the largest batch")
	require.Greater(t, largest, schema.LikesMaxMessageBytes/4, "batches are filled (and compressed)")
}

// signal is an empty reader that signals its first read, when everything before it was read.
type signal struct{ atFirstRead chan struct{} }

func (s *signal) Read([]byte) (int, error) { close(s.atFirstRead); return 0, io.EOF }

func TestImportReportsRejectedRecordsInOrder(t *testing.T) {
	cluster, kafka := broker(t)
	kafka.RequestTimeout = time.Second
	requests := 0
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if requests++; requests <= 3 {
			return nil, nil, false
		}
		return nil, errors.New("the broker is gone"), true
	})
	const events = 200_000
	var text strings.Builder
	text.WriteString("post_id,user_id,action\n")
	for i := range events {
		fmt.Fprintf(&text, "%d,%d,LIKE\n", i%9+1, i+1)
	}
	summary, rejects, err := importText(t, kafka, Options{}, text.String())
	require.ErrorContains(t, err, "was not acknowledged by Kafka")
	require.ErrorContains(t, err, "import it again")
	require.False(t, summary.Complete)
	require.Positive(t, summary.Acknowledged)
	require.Positive(t, summary.NotAcknowledged)
	require.Equal(t, summary.Lines, summary.Acknowledged+summary.NotAcknowledged, "every line is accounted for")
	require.Len(t, rejects, int(summary.NotAcknowledged))
	require.Less(t, summary.Lines, int64(events), "the import must stop when Kafka accepts nothing")

	last := map[uint64]uint64{}
	for _, e := range readLikes(t, kafka) {
		if previous := last[e.PostID]; previous != 0 {
			require.Equal(t, previous+9, e.UserID, "post %d: an event overtook one that failed", e.PostID)
		}
		last[e.PostID] = e.UserID
	}
}

func TestProgress(t *testing.T) {
	_, kafka := broker(t)
	const text = "post_id,user_id,action\n7,1,LIKE\n"
	var bar bytes.Buffer
	_, _, err := importText(t, kafka, Options{Progress: &bar, Terminal: true, Repeat: progress.Repeat}, text)
	require.NoError(t, err)
	require.Contains(t, bar.String(), "1 lines, 0 rejected")
	require.Contains(t, bar.String(), "100%")

	var plain bytes.Buffer
	im := New(Options{Progress: &plain}, kafka, testkit.Log())
	src := &Source{size: 200}
	src.read.Store(50)
	im.count.lines.Store(3)
	im.progressLine(src)
	require.Equal(t, "import: 3 lines read (25 %), 0 acknowledged, 0 rejected\n", plain.String())
}
