package reader

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzAPI: whatever is asked for is answered as the document says.
func FuzzAPI(f *testing.F) {
	shared := newRig(f, func(o *Options) { o.MaxWait = 0 }, noHours(new(asked)))
	f.Add("GET", "/v1/posts/1/likes", "min_offset=7", "")
	f.Add("GET", "/v1/likes", "post_ids=1,2&post_ids=%33&min_offset=0:1,3:2", "")
	f.Add("POST", "/v1/likes:get", "", `{"post_ids":[1,"2", 3 ],"min_offset":[{"partition":1,"offset":2}]}`)
	f.Add("GET", "/v1/posts/1/likers", "page_size=2&page_token="+newPageToken(1, 7), "")
	f.Add("GET", "/v1/trending/us-ca", "window=24h", "")
	f.Add("GET", "/v1/analytics/likes", "interval=day&from=2026-01-01T00:00:00%2B02:00&to=2026-02-01T00:00:00.5Z", "")
	f.Add("BREW", "/../v1//posts", "%zz&=&;", "{")
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		r := *shared
		r.t = t
		u := &url.URL{Path: path, RawQuery: query}
		if strings.ContainsAny(query, " #\r\n\x00") || !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "BREW"}, method) {
			return // no such request can arrive
		}
		req, err := http.NewRequest(method, "http://kudos", strings.NewReader(body))
		require.NoError(t, err)
		req.URL.Path, req.URL.RawQuery, req.RequestURI = u.Path, u.RawQuery, u.RequestURI()
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		a := answered{t, w.Code, w.Header(), w.Body.String()}
		switch {
		case w.Code >= 500:
			require.Equal(t, http.StatusServiceUnavailable, w.Code, "%s %q: %s", method, path, a.body)
			a.requireProblem(http.StatusServiceUnavailable, "not-covered")
		case w.Code >= 400:
			r.holdProblem(a)
		case w.Code >= 300:
			require.Contains(t, []int{http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect}, w.Code, "a path is cleaned: %q", path)
		default:
			r.hold(method, u.RequestURI(), body, req.Header, a)
		}
	})
}

// FuzzPageToken: what is no token is refused, and a token is what it was made of.
func FuzzPageToken(f *testing.F) {
	f.Add(newPageToken(1, 7), uint64(1))
	f.Add(newPageToken(1<<64-1, 1<<64-1), uint64(1<<64-1))
	f.Add("", uint64(0))
	f.Fuzz(func(t *testing.T, token string, post uint64) {
		after, wrong := parsePageToken(token, post)
		if wrong == "" {
			require.Equal(t, newPageToken(post, after), token)
		}
		again, wrong := parsePageToken(newPageToken(post, after), post)
		require.Empty(t, wrong)
		require.Equal(t, after, again)
	})
}
