package query

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRead checks that a query is parsed like net/url does, unless it is rejected.
func FuzzRead(f *testing.F) {
	for _, text := range []string{"", "region=DE&interval=hour", "region=%44E&&from=+", "region=DE&region=US",
		"post_ids=1&post_ids=2,3", "x=1", "region", "region=%zz", "a=b=c;d"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		known := []string{"region", "interval", PostIDs, "from"}
		in := Read(&http.Request{URL: &url.URL{RawQuery: text}}, known...)
		values, err := url.ParseQuery(text)
		if len(in.Wrong()) > 0 {
			return
		}
		if err != nil {
			// A semicolon has no special meaning here: the value that contains it is checked like any other.
			require.Contains(t, text, ";")
			return
		}
		for name, given := range values {
			require.Contains(t, known, name)
			if name != PostIDs {
				require.Len(t, given, 1)
			}
			require.Equal(t, strings.Join(given, ","), in.Value(name))
		}
	})
}
