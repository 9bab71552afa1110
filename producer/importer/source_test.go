package importer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/schema"
)

func TestInterruptWhileStandardInputIsIdle(t *testing.T) {
	_, kafka := broker(t)
	stdin, feed, err := os.Pipe()
	require.NoError(t, err)
	defer stdin.Close()
	defer feed.Close()
	_, err = feed.WriteString("post_id,user_id,action\n7,1,LIKE\n")
	require.NoError(t, err)

	ctx, cancel := context.WithCancelCause(t.Context())
	src, err := Open(ctx, "-", stdin)
	require.NoError(t, err)
	im := New(Options{}, kafka, testkit.Log())
	var summary Summary
	done := make(chan error, 1)
	go func() {
		var err error
		summary, err = im.Run(ctx, src, NewRejects(filepath.Join(t.TempDir(), "rejects")))
		done <- err
	}()
	require.Eventually(t, func() bool { return im.count.lines.Load() == 1 }, 10*time.Second, time.Millisecond)
	cancel(errors.New("stop requested"))
	require.ErrorContains(t, testkit.Receive(t, done, "silent standard input blocks the import"), "stop requested")
	require.False(t, summary.Complete)
	require.EqualValues(t, 1, summary.Acknowledged, "an event that was read must be sent")
	require.Len(t, readLikes(t, kafka), 1)
}

// A file that breaks off within a line: the truncated line could still be read as an event, of another user.
func TestSourceFailsMidway(t *testing.T) {
	_, kafka := broker(t)
	whole := gzipped(t, "post_id,user_id,action\n7,1,LIKE\n7,2,LIKE\n7,3,LIKE")
	const trailer = 8 // of gzip: the checksum and the length
	summary, rejects, err := importText(t, kafka, Options{}, whole[:len(whole)-trailer])
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorContains(t, err, "reading line 4: ")
	require.ErrorContains(t, err, "import it again from the start")
	require.Empty(t, rejects)
	require.False(t, summary.Complete)
	require.EqualValues(t, 2, summary.Acknowledged)
	var users []uint64
	for _, e := range readLikes(t, kafka) {
		require.Equal(t, schema.Like, e.Action)
		users = append(users, e.UserID)
	}
	require.Equal(t, []uint64{1, 2}, users)
}

// A line longer than the buffer is one line, truncated. The next line is complete and has the next number.
func TestLineLongerThanTheBuffer(t *testing.T) {
	sizes := []int{maxLineBytes, maxLineBytes + 1, bufferBytes - 1, bufferBytes, bufferBytes + 1, 3*bufferBytes + 7}
	for _, end := range []string{"\n", "\r\n"} {
		var text strings.Builder
		for _, size := range sizes {
			text.WriteString(strings.Repeat("x", size) + end + "short" + end)
		}
		text.WriteString(strings.Repeat("y", 2*bufferBytes)) // without a line ending
		lines := newLines(strings.NewReader(text.String()))
		for i, size := range sizes {
			long, err := lines.next()
			require.NoError(t, err)
			require.Equal(t, size > maxLineBytes, long.cut, "a line of %d bytes", size)
			require.Equal(t, strings.Repeat("x", maxLineBytes), string(long.text), "a line of %d bytes", size)
			short, err := lines.next()
			require.NoError(t, err)
			require.Equal(t, "short", string(short.text), "after a line of %d bytes", size)
			require.False(t, short.cut)
			require.EqualValues(t, 2*i+2, lines.number)
		}
		last, err := lines.next()
		require.NoError(t, err)
		require.True(t, last.cut)
		_, err = lines.next()
		require.ErrorIs(t, err, io.EOF)
		require.EqualValues(t, 2*len(sizes)+1, lines.number)
	}

	broken := errors.New("the disk is broken")
	lines := newLines(io.MultiReader(strings.NewReader(strings.Repeat("x", 2*bufferBytes)), iotest.ErrReader(broken)))
	_, err := lines.next()
	require.ErrorIs(t, err, broken, "an incomplete line must not be returned, however long")
}

// FuzzLines checks that each line that is not empty becomes an event or is rejected, and does not affect others.
func FuzzLines(f *testing.F) {
	f.Add([]byte("post_id,user_id,action,time_ms,region\n1,2,LIKE,3,US\n1,\"2\",like,,\n\"1,2"))
	f.Add([]byte("{\"post_id\":1,\"user_id\":\"2\",\"action\":true}\n{}\n[]"))
	f.Add([]byte("\xef\xbb\xbfuser_id;post_id\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines := newLines(bytes.NewReader(text))
		decode, format, err := newDecoder(Auto, lines)
		if err != nil {
			return
		}
		for {
			line, err := lines.next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if len(line.text) == 0 {
				continue
			}
			var e schema.Event
			if line.decode(decode, &e) == nil {
				require.NoError(t, e.Check(), "%s line %d: %q", format, lines.number, line.text)
			}
		}
		want := int64(bytes.Count(text, []byte("\n")))
		if len(text) > 0 && text[len(text)-1] != '\n' {
			want++
		}
		require.Equal(t, want, lines.number)
	})
}
