package importer

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
	"kudos/stream/kafka"
)

const testPartitions = 4

// broker starts an embedded one, with the likes topic unless told otherwise.
func broker(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, kafka.Options) {
	t.Helper()
	if len(opts) == 0 {
		opts = []kfake.Opt{kfake.SeedTopics(testPartitions, schema.TopicLikes)}
	}
	cluster, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	kafka := kafka.DefaultOptions()
	kafka.Brokers = cluster.ListenAddrs()
	kafka.RequestTimeout = 5 * time.Second
	return cluster, kafka
}

// importText runs an import of a text and returns how it went, and the rejects file.
func importText(t *testing.T, kafka kafka.Options, opts Options, text string) (Summary, [][]string, error) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "input")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return importFrom(t, kafka, opts, path, nil)
}

func importFrom(t *testing.T, kafka kafka.Options, opts Options, path string, stdin io.Reader) (Summary, [][]string, error) {
	t.Helper()
	src, err := Open(t.Context(), path, stdin)
	require.NoError(t, err)
	defer src.Close()
	rejects := NewRejects(filepath.Join(t.TempDir(), "rejects"))
	summary, err := New(opts, kafka, slog.New(slog.DiscardHandler)).Run(t.Context(), src, rejects)
	return summary, readRejects(t, rejects), err
}

func readRejects(t *testing.T, r *Rejects) [][]string {
	t.Helper()
	if r.Written() == "" {
		require.NoFileExists(t, r.path, "an import without rejects must leave no file")
		return nil
	}
	text, err := os.ReadFile(r.path)
	require.NoError(t, err)
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	require.NoError(t, err)
	require.Equal(t, []string{"line", "reason", "original"}, rows[0])
	return rows[1:]
}

// readLikes returns the events in the topic, by partition and offset; it checks that
// each is where the contract wants it.
func readLikes(t *testing.T, cluster *kfake.Cluster, kafka kafka.Options) []schema.Event {
	t.Helper()
	ends := map[int32]int64{}
	for _, p := range cluster.PartitionInfos(schema.TopicLikes) {
		ends[p.Partition] = p.HighWatermark
	}
	client, err := kafka.NewClient(slog.New(slog.DiscardHandler), kgo.ConsumeTopics(schema.TopicLikes),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var records []*kgo.Record
	for total := int64(0); ; {
		total = 0
		for _, end := range ends {
			total += end
		}
		if int64(len(records)) >= total {
			break
		}
		fetches := client.PollFetches(ctx)
		require.NoError(t, fetches.Err(), "read likes: have %d of %d", len(records), total)
		records = append(records, fetches.Records()...)
	}
	slices.SortStableFunc(records, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	events := make([]schema.Event, len(records))
	for i, r := range records {
		require.NotEqual(t, byte('{'), r.Value[0], "events are written as Protobuf")
		require.NoError(t, schema.DecodeEvent(r.Key, r.Value, &events[i]))
		require.Equal(t, string(schema.AppendPostKey(nil, events[i].PostID)), string(r.Key))
		require.Equal(t, schema.PartitionFor(events[i].PostID, testPartitions), r.Partition)
	}
	return events
}

func region(t *testing.T, s string) schema.Region {
	t.Helper()
	r, ok := schema.ParseRegion(s)
	require.True(t, ok)
	return r
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
	want := []schema.Event{
		{PostID: 7, UserID: 1, Action: schema.Like, TimeMs: 1000, Region: region(t, "US")},
		{PostID: 7, UserID: 18446744073709551615, Action: schema.Dislike, TimeMs: 2000, Region: region(t, "BR-SP")},
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
		"csv, other order, quotes, spaces, CRLF, byte order mark, empty lines, no end of the last line": {
			"\xef\xbb\xbfAction,\"region\", time_ms,user_id,post_id\r\n\r\n" +
				"LIKE,\"us\",1000,1,7\r\nDISLIKE, BR-SP ,2000,18446744073709551615,7\r\n  \r\nfalse,,3000,1,7\r\ntrue,atlantis,,2,\"7\"", CSV},
		"ndjson": {
			`{"post_id":7,"user_id":1,"action":"LIKE","time_ms":1000,"region":"us"}` + "\n" +
				` {"post_id":"7","user_id":"18446744073709551615","action":"DISLIKE","time_ms":2000,"region":"BR-SP"}` + "\n\n" +
				`{"post_id":7,"user_id":1,"action":false,"time_ms":3000}` + "\n" +
				`{"post_id":7,"user_id":2,"action":true,"region":"atlantis"}`, NDJSON},
		"csv, compressed": {gzipped(t, plain), CSV},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, kafka := broker(t)
			summary, rejects, err := importText(t, kafka, Options{}, c.text)
			require.NoError(t, err)
			require.Empty(t, rejects)
			require.Equal(t, want, readLikes(t, cluster, kafka))

			require.Positive(t, summary.Seconds)
			summary.Source, summary.Seconds = "", 0
			require.Equal(t, Summary{Format: c.format, Complete: true, Lines: 4, Acknowledged: 4, UnknownRegions: 1}, summary)
		})
	}
}

func TestTimeAndRegionMayMiss(t *testing.T) {
	cluster, kafka := broker(t)
	_, _, err := importText(t, kafka, Options{}, "user_id,action,post_id\n1,LIKE,7\n")
	require.NoError(t, err)
	require.Equal(t, []schema.Event{{PostID: 7, UserID: 1, Action: schema.Like, Region: schema.UnknownRegion}}, readLikes(t, cluster, kafka))
}

func TestRejectedLinesAreNamedAndTheOthersArrive(t *testing.T) {
	_, kafka := broker(t)
	long := strings.Repeat("9", 10_000)
	for name, c := range map[string]struct {
		text string
		want [][2]string // line, part of the reason
	}{
		"csv": {
			text: "post_id,user_id,action,time_ms\n" +
				"7,1,LIKE,1000\n" + // 2
				"seven,1,LIKE,1000\n" +
				"7,-1,LIKE,1000\n" +
				"7,1,like,1000\n" +
				"7,1,1,1000\n" +
				"7,1,LIKE,yesterday\n" +
				"7,1,LIKE,-5\n" + // 8
				"0,1,LIKE,1000\n" +
				"7,1,LIKE\n" +
				"7,1,LIKE,1000,US\n" +
				"7,\"1,LIKE,1000\n" + // 12: a quote that is never closed spoils this line only
				long + ",1,LIKE,1000\n" +
				"\n" +
				"7,2,LIKE,1000\n",
			want: [][2]string{
				{"3", `post_id: "seven" is not a whole number`},
				{"4", `user_id: "-1" is not a whole number`},
				{"5", `action: "like" is unknown; LIKE`},
				{"6", `action: "1" is unknown; LIKE`},
				{"7", `time_ms: "yesterday"`},
				{"8", `time_ms: is negative`},
				{"9", `post_id: is missing or 0`},
				{"10", `has 3 fields, the header has 4`},
				{"11", `has 5 fields, the header has 4`},
				{"12", `is not CSV`},
				{"13", `is longer than 4096 bytes`},
			},
		},
		"ndjson": {
			text: `{"post_id":7,"user_id":1,"action":"LIKE"}` + "\n" +
				`{"post_id":7,"user_id":1,"action":"LOVE"}` + "\n" +
				`{"post_id":7,"action":"LIKE"}` + "\n" +
				`7,1,LIKE` + "\n" +
				`{"post_id":7,` + "\n" +
				`{"post_id":7,"user_id":2,"action":"LIKE"}` + "\n",
			want: [][2]string{
				{"2", "action: is missing or unknown"},
				{"3", "user_id: is missing or 0"},
				{"4", "is not a JSON object"},
				{"5", "not JSON"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			summary, rejects, err := importText(t, kafka, Options{}, c.text)
			require.ErrorContains(t, err, fmt.Sprintf("%d of %d lines were rejected", len(c.want), len(c.want)+2))
			require.ErrorContains(t, err, summary.RejectsFile)
			require.EqualValues(t, 2, summary.Acknowledged)
			require.EqualValues(t, len(c.want), summary.Rejected)
			require.Len(t, rejects, len(c.want))
			original := strings.Split(c.text, "\n")
			for i, want := range c.want {
				require.Equal(t, want[0], rejects[i][0])
				require.Contains(t, rejects[i][1], want[1], "line %s", want[0])
				var number int
				_, err := fmt.Sscan(want[0], &number)
				require.NoError(t, err)
				require.True(t, strings.HasPrefix(original[number-1], rejects[i][2]), "line %s: the original stands in the file", want[0])
			}
		})
	}
}

func TestHeaderIsChecked(t *testing.T) {
	_, kafka := broker(t)
	for text, want := range map[string]string{
		"":                                 "is empty; CSV begins with a header",
		"7,1,LIKE\n":                       `not a header of the columns post_id`,
		"post_id,user_id\n":                "lacks the column action",
		"post_id,user_id,action,tim\n":     `"tim" is none of them`,
		"post_id,user_id,action,post_id\n": "column post_id twice",
	} {
		_, _, err := importText(t, kafka, Options{}, text)
		require.ErrorContains(t, err, want)
	}
}

func TestFormatCanBeForced(t *testing.T) {
	_, kafka := broker(t)
	_, rejects, err := importText(t, kafka, Options{Format: NDJSON}, "post_id,user_id,action\n")
	require.ErrorContains(t, err, "1 of 1 lines were rejected")
	require.Equal(t, [][]string{{"1", "is not a JSON object", "post_id,user_id,action"}}, rejects)
	_, err = ParseFormat("xml")
	require.ErrorContains(t, err, "none of auto, csv, ndjson")
}

func TestMissingTopicNamesTheCommandThatHelps(t *testing.T) {
	_, kafka := broker(t, kfake.AllowAutoTopicCreation())
	_, _, err := importText(t, kafka, Options{}, "post_id,user_id,action\n7,1,LIKE\n")
	require.ErrorContains(t, err, `topic "likes" does not exist`)
	require.ErrorContains(t, err, "kudos topics apply")
}

func TestUnreachableKafkaIsNamed(t *testing.T) {
	cluster, kafka := broker(t)
	cluster.Close()
	kafka.RequestTimeout = time.Second
	_, _, err := importText(t, kafka, Options{}, "post_id,user_id,action\n7,1,LIKE\n")
	require.ErrorContains(t, err, kafka.Brokers[0])
}

func TestOrderOfAPostIsKeptAndBatchesFit(t *testing.T) {
	cluster, kafka := broker(t)
	largest := 0
	// Kafka is slower than the input: what fills a batch is what waits, on any machine.
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
	want := map[uint64][]uint64{} // by post, the users in order
	for range events {
		post, user := random.Uint64N(9)+1, random.Uint64()|1
		want[post] = append(want[post], user)
		fmt.Fprintf(&text, "%d,%d,LIKE,%d\n", post, user, random.Int64N(1<<40)+1)
	}
	half := text.Len() / 2
	input := io.MultiReader(strings.NewReader(text.String()[:half]), &signal{atFirstRead: waiting}, strings.NewReader(text.String()[half:]))
	summary, _, err := importFrom(t, kafka, Options{}, "-", input)
	require.NoError(t, err)
	require.EqualValues(t, events, summary.Acknowledged)
	got := map[uint64][]uint64{}
	for _, e := range readLikes(t, cluster, kafka) {
		got[e.PostID] = append(got[e.PostID], e.UserID)
	}
	require.Equal(t, want, got)
	require.LessOrEqual(t, largest, schema.LikesMaxMessageBytes, "bytes of the largest batch")
	require.Greater(t, largest, schema.LikesMaxMessageBytes/4, "batches are filled (and compressed)")
}

// signal is an empty reader that tells when what stands before it was read.
type signal struct{ atFirstRead chan struct{} }

func (s *signal) Read([]byte) (int, error) {
	close(s.atFirstRead)
	return 0, io.EOF
}

func TestWhatKafkaDoesNotTakeIsNamedAndNothingOvertakesIt(t *testing.T) {
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
	require.Equal(t, summary.Lines, summary.Acknowledged+summary.NotAcknowledged, "every line that was read is accounted for")
	require.Len(t, rejects, int(summary.NotAcknowledged))
	require.Less(t, summary.Lines, int64(events), "it goes on although Kafka takes nothing")

	last := map[uint64]uint64{}
	for _, e := range readLikes(t, cluster, kafka) {
		if previous := last[e.PostID]; previous != 0 {
			require.Equal(t, previous+9, e.UserID, "post %d: an event overtook one that failed", e.PostID)
		}
		last[e.PostID] = e.UserID
	}
}

func TestInterruptedWhileStandardInputIsSilent(t *testing.T) {
	cluster, kafka := broker(t)
	stdin, feed, err := os.Pipe()
	require.NoError(t, err)
	defer stdin.Close()
	defer feed.Close()
	_, err = feed.WriteString("post_id,user_id,action\n7,1,LIKE\n")
	require.NoError(t, err)

	ctx, cancel := context.WithCancelCause(t.Context())
	src, err := Open(ctx, "-", stdin)
	require.NoError(t, err)
	im := New(Options{}, kafka, slog.New(slog.DiscardHandler))
	type result struct {
		summary Summary
		err     error
	}
	done := make(chan result, 1)
	go func() {
		summary, err := im.Run(ctx, src, NewRejects(filepath.Join(t.TempDir(), "rejects")))
		done <- result{summary, err}
	}()
	require.Eventually(t, func() bool { return im.count.lines.Load() == 1 }, 10*time.Second, time.Millisecond)
	cancel(errors.New("told to stop"))
	select {
	case got := <-done:
		require.ErrorContains(t, got.err, "told to stop")
		require.False(t, got.summary.Complete)
		require.EqualValues(t, 1, got.summary.Acknowledged, "what was read is sent")
	case <-time.After(10 * time.Second):
		t.Fatal("a silent standard input holds the import up")
	}
	require.Len(t, readLikes(t, cluster, kafka), 1)
}

func TestRejectsFileThatCannotBeWritten(t *testing.T) {
	_, kafka := broker(t)
	path := filepath.Join(t.TempDir(), "input")
	require.NoError(t, os.WriteFile(path, []byte("post_id,user_id,action\nx,1,LIKE\n"), 0o600))
	src, err := Open(t.Context(), path, nil)
	require.NoError(t, err)
	defer src.Close()
	_, err = New(Options{}, kafka, slog.New(slog.DiscardHandler)).Run(t.Context(), src, NewRejects(filepath.Join(t.TempDir(), "no", "folder")))
	require.ErrorContains(t, err, "--rejects")
}

func TestProgress(t *testing.T) {
	_, kafka := broker(t)
	const text = "post_id,user_id,action\n7,1,LIKE\n"
	var bar bytes.Buffer
	_, _, err := importText(t, kafka, Options{Progress: &bar, Terminal: true}, text)
	require.NoError(t, err)
	require.Contains(t, bar.String(), "1 lines, 0 rejected")
	require.Contains(t, bar.String(), "100%")

	var plain bytes.Buffer
	im := New(Options{Progress: &plain}, kafka, slog.New(slog.DiscardHandler))
	src := &Source{size: 200}
	src.read.Store(50)
	im.count.lines.Store(3)
	im.progressLine(src)
	require.Equal(t, "import: 3 lines read (25 %), 0 acknowledged, 0 rejected\n", plain.String())
}
