package producer

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

const page = "https://www.example.com"

// A page of another origin, as a reader's dashboard is, may like from a browser.
func TestOrigins(t *testing.T) {
	r := start(t, func(o *Options) { o.Origins = []string{page} })
	for _, method := range []string{"PUT", "DELETE", "POST"} {
		path := "/v1/posts/7/likes/9"
		if method == "POST" {
			path = "/v1/posts/7/likes"
		}
		a := r.send(http.MethodOptions, path, "", "Origin", page, "Access-Control-Request-Method", method, "Access-Control-Request-Headers", "content-type")
		require.Equal(t, http.StatusNoContent, a.status)
		require.Equal(t, page, a.header.Get("Access-Control-Allow-Origin"))
		require.Equal(t, method, a.header.Get("Access-Control-Allow-Methods"))
		require.Equal(t, "content-type", a.header.Get("Access-Control-Allow-Headers"))
	}
	a := r.send(http.MethodPut, "/v1/posts/7/likes/9", "", "Origin", page)
	require.Equal(t, http.StatusAccepted, a.status)
	require.Equal(t, page, a.header.Get("Access-Control-Allow-Origin"))
	a = r.send(http.MethodPut, "/v1/posts/0/likes/9", "", "Origin", page)
	require.Equal(t, http.StatusBadRequest, a.status)
	require.Equal(t, page, a.header.Get("Access-Control-Allow-Origin"), "the page can read what is wrong")
	a = r.send(http.MethodPut, "/v1/posts/7/likes/9", "", "Origin", "https://www.example.org")
	require.Equal(t, http.StatusAccepted, a.status, "who asks without a browser is not kept out")
	require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
}

func TestNoOriginsByDefault(t *testing.T) {
	r := start(t, nil)
	require.Empty(t, r.send(http.MethodPut, "/v1/posts/7/likes/9", "", "Origin", page).header.Get("Access-Control-Allow-Origin"))
	a := r.send(http.MethodOptions, "/v1/posts/7/likes/9", "", "Origin", page, "Access-Control-Request-Method", "PUT")
	require.Equal(t, http.StatusMethodNotAllowed, a.status)
	require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
}

func TestOriginsAreChecked(t *testing.T) {
	o := DefaultOptions()
	o.Origins = []string{page, "www.example.com"}
	require.ErrorContains(t, o.Validate(), `producer.origins: "www.example.com" is not an origin`)
}
