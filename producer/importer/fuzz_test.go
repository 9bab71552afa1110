package importer

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// FuzzLines: each line that is not empty is an event or is refused, none is lost, and
// a bad one does not spoil another.
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
