package producer

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit/apikit"
)

func TestDocumentIsWhatIsServed(t *testing.T) {
	r := start(t, nil)
	apikit.LoadDocument(t, document).RequireServed(t, r.served())
	a := r.Send("GET", "/openapi.yaml", "").Require(http.StatusOK).RequireHeader("Content-Type", "application/yaml")
	require.Equal(t, document, a.Body)
}

func TestResponsesMatchTheDocument(t *testing.T) {
	doc := apikit.LoadDocument(t, document)
	r := start(t, func(o *Options) { behindGateway(o); o.UserRate, o.UserBurst = 0.001, 7 })
	for _, tt := range []struct {
		user, method, path, contentType, body string
		status                                int
	}{
		{"9", "PUT", likes + "/9?time_ms=5&region=DE", "", "", 202},
		{"9", "DELETE", likes + "/9", "", "", 202},
		{"9", "PUT", "/v1/posts/7/dislikes/9", "", "", 202},
		{"9", "DELETE", "/v1/posts/7/dislikes/9", "", "", 202},
		{"9", "POST", likes, "application/json", `{"user_id":"9","time_ms":5,"region":"DE"}`, 202},
		{"9", "POST", batch, ndjson, line(7, 9) + "\n" + line(7, 8) + "\n{}", 202},
		{"9", "POST", batch + "?lines=errors", ndjson, line(7, 8), 403},
		{"9", "POST", batch, ndjson, "{}", 400},
		{"9", "PUT", likes + "/me", "", "", 400},
		{"9", "PUT", likes + "/8", "", "", 403},
		{"me", "PUT", likes + "/9", "", "", 401},
		{"9", "POST", likes, "text/plain", "me", 415},
		{"9", "POST", likes, "application/json", strings.Repeat(" ", 5000), 413},
		{"9", "POST", batch, ndjson, line(7, 9) + "\n" + line(7, 9), 202},
		{"9", "PUT", likes + "/9", "", "", 429},
		{"9", "POST", batch, ndjson, line(7, 9), 429},
	} {
		a := r.Send(tt.method, tt.path, tt.body, "X-User-Id", tt.user, "Content-Type", tt.contentType)
		a.Require(tt.status)
		header := http.Header{"X-User-Id": {tt.user}, "Content-Type": {tt.contentType}}
		broken, found := doc.Hold(a, tt.method, tt.path, tt.body, header)
		require.True(t, found, "%s %s", tt.method, tt.path)
		if tt.status == accepted {
			require.NoError(t, broken, "%s %s", tt.method, tt.path)
		}
	}
}

func TestDocumentNamesTheReasons(t *testing.T) {
	var documented []string
	line := apikit.LoadDocument(t, document).Components.Schemas["Line"].Value
	for _, reason := range line.Properties["reason"].Value.Enum {
		documented = append(documented, reason.(string))
	}
	require.ElementsMatch(t, append(rejectReasons, reasonNotAcknowledged), documented)
}

// A page of another origin, such as a reader's dashboard, may send likes from a browser if listed; by default none may.
func TestOrigins(t *testing.T) {
	const page, allow = "https://www.example.com", "Access-Control-Allow-Origin"
	r, closed := start(t, func(o *Options) { o.Origins = []string{page} }), start(t, nil)
	for method, path := range map[string]string{"PUT": like, "DELETE": like, "POST": likes} {
		const ask = "Access-Control-Request-"
		preflight := []string{"Origin", page, ask + "Method", method, ask + "Headers", "content-type"}
		r.Send(http.MethodOptions, path, "", preflight...).Require(http.StatusNoContent).RequireHeader(allow, page).
			RequireHeader("Access-Control-Allow-Methods", method).
			RequireHeader("Access-Control-Allow-Headers", "content-type")
		closed.Send(http.MethodOptions, path, "", preflight...).Require(http.StatusMethodNotAllowed).
			RequireHeader(allow, "")
	}
	const invalid = "/v1/posts/0/likes/9"
	r.put(like, "Origin", page).Require(accepted).RequireHeader(allow, page)
	r.put(invalid, "Origin", page).Require(http.StatusBadRequest).RequireHeader(allow, page) // the page can read why
	r.put(like, "Origin", "https://www.example.org").Require(accepted).RequireHeader(allow, "")
	closed.put(like, "Origin", page).Require(accepted).RequireHeader(allow, "")
	r.End()
}

// FuzzAPI checks that each response has the documented form and that Kafka has exactly the events reported as accepted.
func FuzzAPI(f *testing.F) {
	r := start(f, nil)
	f.Add("PUT", "/v1/posts/1/likes/2", "region=us&time_ms=7", "", []byte(nil))
	f.Add("POST", "/v1/posts/1/likes", "", "application/json", []byte(`{"user_id":"7","region":"DE"}`))
	f.Add("POST", batch, "lines=errors", ndjson, []byte(line(1, 2)+"\nx\n"))
	f.Add("DELETE", "/v1/posts/18446744073709551616/dislikes/0", "", "", []byte(nil))
	f.Add("BREW", "/../v1//posts", "%zz", "text/html; charset=", []byte("{"))
	f.Fuzz(func(t *testing.T, method, path, query, contentType string, body []byte) {
		u := &url.URL{Path: path, RawQuery: query}
		req, err := http.NewRequest(method, "http://kudos", bytes.NewReader(body))
		if err != nil {
			return // no such request can arrive
		}
		req.URL.Path, req.URL.RawQuery, req.RequestURI = u.Path, u.RawQuery, u.RequestURI()
		if contentType != "" {
			req.Header.Set("Content-Type", contentType)
		}
		before := r.written()
		a := apikit.Ask(t, r.HTTP.Handler, req)
		written := int64(0)
		switch {
		case a.Status == http.StatusOK:
			require.Equal(t, document, a.Body)
		case a.Status == accepted && path != batch:
			placeOf(a)
			written = 1
		case a.Status == accepted || a.Status >= 400:
			var answer struct {
				Status      int
				Type, Title string
				Accepted    int64
			}
			a.Decode(&answer)
			written = answer.Accepted
			if a.Status >= 400 {
				require.Less(t, a.Status, 500, "%s %q: %s", method, path, a.Body)
				a.RequireHeader("Content-Type", "application/problem+json")
				require.Equal(t, a.Status, answer.Status)
				require.NotEmpty(t, answer.Type)
				require.NotEmpty(t, answer.Title)
			}
		default:
			require.Contains(t, []int{301, 307, 308}, a.Status, "want a redirect to the clean path: %q", path)
		}
		require.Equal(t, before+written, r.written())
	})
}
