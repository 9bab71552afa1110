package httpserver

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckOrigins(t *testing.T) {
	require.NoError(t, CheckOrigins(nil))
	require.NoError(t, CheckOrigins([]string{
		"*", "https://www.example.com", "http://localhost:8081", "http://[::1]:8081", "http://127.0.0.1",
	}))
	for _, bad := range []string{
		"", "www.example.com", "https://www.example.com/", "https://www.example.com/page", "https://me@www.example.com",
		"ftp://www.example.com", "https://", "https://:8081", "https://*.example.com", "https://www.example.com*",
		"https://WWW.example.com", "HTTPS://www.example.com", "null", "https://a b",
	} {
		err := CheckOrigins([]string{"https://good.example.com", bad})
		require.ErrorContains(t, err, "is not an origin, such as https://www.example.com", "%q", bad)
	}
}

func TestCORS(t *testing.T) {
	handler := func(origins ...string) http.Handler {
		return CORS{
			Origins: origins, Methods: []string{"PUT"}, Headers: []string{"Content-Type"},
			Exposed: []string{"Retry-After"},
		}.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	}
	ask := func(h http.Handler, method, origin, wants string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/", nil)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		if wants != "" {
			r.Header.Set("Access-Control-Request-Method", wants)
			r.Header.Set("Access-Control-Request-Headers", "content-type")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	const listed, other = "https://www.example.com", "https://www.example.org"
	const allow = "Access-Control-Allow-Origin"
	h := handler(listed)

	w := ask(h, "PUT", listed, "")
	require.Equal(t, http.StatusTeapot, w.Code)
	require.Equal(t, listed, w.Header().Get(allow))
	require.Equal(t, "Retry-After", w.Header().Get("Access-Control-Expose-Headers"))
	require.Equal(t, "Origin", w.Header().Get("Vary"), "a cache must not serve one origin's response to another")

	w = ask(h, "PUT", other, "")
	require.Equal(t, http.StatusTeapot, w.Code, "requests of other origins must be served, without CORS headers")
	require.Empty(t, w.Header().Get(allow))

	w = ask(h, "OPTIONS", listed, "PUT")
	require.Equal(t, http.StatusNoContent, w.Code)
	require.Equal(t, listed, w.Header().Get(allow))
	require.Equal(t, "PUT", w.Header().Get("Access-Control-Allow-Methods"))
	require.Equal(t, "content-type", w.Header().Get("Access-Control-Allow-Headers"))
	require.Equal(t, "600", w.Header().Get("Access-Control-Max-Age"))
	require.Empty(t, ask(h, "OPTIONS", other, "PUT").Header().Get(allow))
	require.Empty(t, ask(h, "OPTIONS", listed, "PATCH").Header().Get(allow))

	require.Equal(t, "*", ask(handler("*"), "PUT", other, "").Header().Get(allow))

	w = ask(handler(), "OPTIONS", listed, "PUT")
	require.Equal(t, http.StatusTeapot, w.Code, "without origins, preflights must not be answered")
	require.Empty(t, w.Header().Get(allow))
}
