package importer

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// A file that breaks off within a line: what was cut could still read as an event, of
// another user. What came before is imported, and the import says that it is not all.
func TestASourceThatBreaksOff(t *testing.T) {
	cluster, kafka := broker(t)
	whole := gzipped(t, "post_id,user_id,action\n7,1,LIKE\n7,2,LIKE\n7,3,LIKE")
	const trailer = 8 // of gzip: the checksum and the length
	summary, rejects, err := importText(t, kafka, Options{}, whole[:len(whole)-trailer])
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorContains(t, err, "read line 4: ")
	require.ErrorContains(t, err, "import it again from the start")
	require.Empty(t, rejects)
	require.False(t, summary.Complete)
	require.EqualValues(t, 2, summary.Acknowledged)
	var users []uint64
	for _, e := range readLikes(t, cluster, kafka) {
		require.Equal(t, schema.Like, e.Action)
		users = append(users, e.UserID)
	}
	require.Equal(t, []uint64{1, 2}, users)
}

// A line may be longer than what is buffered: it is one line, cut, and the next one is
// whole and has the next number.
func TestALineThatIsLongerThanTheBuffer(t *testing.T) {
	sizes := []int{maxLineBytes, maxLineBytes + 1, bufferBytes - 1, bufferBytes, bufferBytes + 1, 3*bufferBytes + 7}
	for _, end := range []string{"\n", "\r\n"} {
		var text strings.Builder
		for _, size := range sizes {
			text.WriteString(strings.Repeat("x", size) + end + "short" + end)
		}
		text.WriteString(strings.Repeat("y", 2*bufferBytes)) // without its end
		lines := newLines(strings.NewReader(text.String()))
		for i, size := range sizes {
			long, err := lines.next()
			require.NoError(t, err)
			require.Equal(t, size > maxLineBytes, long.cut, "a line of %d bytes", size)
			require.Equal(t, strings.Repeat("x", maxLineBytes), string(long.text), "a line of %d bytes", size)
			short, err := lines.next()
			require.NoError(t, err)
			require.Equal(t, "short", string(short.text), "behind a line of %d bytes", size)
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
	require.ErrorIs(t, err, broken, "a line that breaks off is none, however long")
}
