package query

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/httpserver/problem"
	"kudos/schema"
)

// All that is wrong is told, each under its name.
func TestWrong(t *testing.T) {
	in := Read(httptest.NewRequest("GET", "/?region=Germany&page_size=0&page_size=1&x=1&post_ids=1,2,3", nil), "region", "page_size", PostIDs)
	require.Equal(t, schema.UnknownRegion, in.Region("region", in.Value("region")))
	in.Number("page_size", 10, 5)
	require.Empty(t, in.Posts(nil, 2))
	var wrong []string
	for _, w := range in.Wrong() {
		wrong = append(wrong, w.Field+" "+w.Reason)
	}
	require.Equal(t, []string{"page_size repeated", "x unknown_field", "region undecodable", "page_size out_of_range", "post_ids too_many"}, wrong)
}

func TestValues(t *testing.T) {
	in := Read(httptest.NewRequest("GET", "/?post_ids=1,2&last_event_id=&post_ids=3&window=day", nil), PostIDs, LastEventID, "window", "interval")
	require.Equal(t, []uint64{9, 1, 2, 3}, in.Posts([]uint64{9}, 3))
	require.True(t, in.Given(LastEventID))
	require.Equal(t, "day", in.Window("window"))
	require.Equal(t, "hour", in.OneOf("interval", "hour", "hour", "day"))
	require.Equal(t, 5, in.Number("interval", 10, 5))
	require.Equal(t, schema.Global, in.Region("interval", "Global"))
	require.Empty(t, in.Wrong())
	in.Add(problem.FieldError{Field: "id"})
	require.Len(t, in.Wrong(), 1)
}

// FuzzRead: a query is read as net/url reads it, but for what is refused.
func FuzzRead(f *testing.F) {
	for _, text := range []string{"", "region=DE&interval=hour", "region=%44E&&from=+", "region=DE&region=US", "post_ids=1&post_ids=2,3", "x=1", "region", "region=%zz", "a=b=c;d"} {
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
			// A semicolon stands for itself here, in a value that is then judged.
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
