package dashboard

import (
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func get(t *testing.T, h http.Handler, method, target string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(text)
}

func TestPage(t *testing.T) {
	h := Handler(Settings{})
	r := get(t, h, "GET", "/")
	require.Equal(t, 200, r.StatusCode)
	require.Equal(t, "text/html; charset=utf-8", r.Header.Get("Content-Type"))
	require.Contains(t, body(t, r), "<title>kudos</title>")

	r = get(t, h, "HEAD", "/")
	require.Equal(t, 200, r.StatusCode)
	require.Empty(t, body(t, r))
}

func TestSettings(t *testing.T) {
	r := get(t, Handler(Settings{ProducerURL: "https://likes.example.com"}), "GET", "/dashboard.json")
	require.Equal(t, "application/json", r.Header.Get("Content-Type"))
	require.JSONEq(t, `{"producer_url": "https://likes.example.com"}`, body(t, r))
}

func TestHeadersOfEveryFile(t *testing.T) {
	h := Handler(Settings{})
	types := map[string]string{
		".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
		".md": "text/plain; charset=utf-8", "": "text/plain; charset=utf-8",
	}
	served := 0
	require.NoError(t, fs.WalkDir(files, "assets", func(name string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		if entry.IsDir() {
			return nil
		}
		served++
		r := get(t, h, "GET", "/"+name)
		require.Equal(t, 200, r.StatusCode, name)
		require.Equal(t, types[path.Ext(name)], r.Header.Get("Content-Type"), name)
		require.Equal(t, "nosniff", r.Header.Get("X-Content-Type-Options"), name)
		require.Equal(t, "no-referrer", r.Header.Get("Referrer-Policy"), name)
		require.Contains(t, r.Header.Get("Content-Security-Policy"), "default-src 'self'", name)
		return nil
	}))
	require.Greater(t, served, 10)
}

// A browser asks each time, and is sent a file only if it has another.
func TestFilesAreAskedForByTheirContent(t *testing.T) {
	h := Handler(Settings{})
	r := get(t, h, "GET", "/assets/app.js")
	require.Equal(t, "no-cache", r.Header.Get("Cache-Control"))
	etag := r.Header.Get("ETag")
	require.Regexp(t, `^"[\w-]{16}"$`, etag)

	r = get(t, h, "GET", "/assets/app.js", "If-None-Match", etag)
	require.Equal(t, 304, r.StatusCode)
	require.Equal(t, etag, r.Header.Get("ETag"))
	require.Empty(t, body(t, r))

	require.NotEqual(t, etag, get(t, h, "GET", "/").Header.Get("ETag"))
	require.NotEqual(t, get(t, h, "GET", "/dashboard.json").Header.Get("ETag"),
		get(t, Handler(Settings{ProducerURL: "http://a"}), "GET", "/dashboard.json").Header.Get("ETag"))
}

func TestPolicyNamesWhoThePageMayTalkTo(t *testing.T) {
	connect := func(producer, host string) string {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		Handler(Settings{ProducerURL: producer}).ServeHTTP(w, r)
		_, directive, _ := strings.Cut(w.Header().Get("Content-Security-Policy"), "connect-src ")
		directive, _, _ = strings.Cut(directive, ";")
		return directive
	}
	for _, c := range []struct{ producer, host, want string }{
		{"", "kudos.example.com", "'self' ws://kudos.example.com wss://kudos.example.com"},
		{"", "[::1]:8081", "'self' ws://[::1]:8081 wss://[::1]:8081"},
		{"http://127.0.0.1:8080", "a:1", "'self' ws://a:1 wss://a:1 http://127.0.0.1:8080"},
		{"https://likes.example.com/kudos/", "a:1", "'self' ws://a:1 wss://a:1 https://likes.example.com"},
		// Nothing that somebody sends gets into the policy.
		{"", "a;script-src *", "'self'"},
		{"", "a b", "'self'"},
		{"", "a,b", "'self'"},
		{"", "", "'self'"},
		{"https://a;b/", "a", "'self' ws://a wss://a"},
		{"javascript:alert(1)", "a", "'self' ws://a wss://a"},
	} {
		require.Equal(t, c.want, connect(c.producer, c.host), "%+v", c)
	}
}

func TestOtherPathsAndMethods(t *testing.T) {
	h := Handler(Settings{})
	for _, target := range []string{"/v1/nothing", "/assets", "/assets/", "/assets/none.js", "/index.html", "/assets/../dashboard.go", "/favicon.ico"} {
		r := get(t, h, "GET", target)
		require.Equal(t, 404, r.StatusCode, target)
		require.Equal(t, "application/problem+json", r.Header.Get("Content-Type"), target)
		var p problem
		require.NoError(t, json.Unmarshal([]byte(body(t, r)), &p))
		require.Equal(t, "urn:kudos:problem:not-found", p.Type)
		require.Equal(t, 404, p.Status)
		require.Contains(t, p.Detail, target)
	}
	r := get(t, h, "POST", "/")
	require.Equal(t, 405, r.StatusCode)
	require.Equal(t, "GET, HEAD", r.Header.Get("Allow"))
	require.Contains(t, body(t, r), "urn:kudos:problem:method-not-allowed")
}

// TestFilesKeepToThePolicy: what the policy forbids would only fail in a browser.
func TestFilesKeepToThePolicy(t *testing.T) {
	page, err := fs.ReadFile(files, "index.html")
	require.NoError(t, err)
	inline := regexp.MustCompile(`<script(?:[^>]*)>[^<]|<style|\sstyle=|\son[a-z]+=|javascript:`)
	require.Empty(t, inline.FindAllString(string(page), -1), "inline script or style")

	// Each file that the page names is there, and each module that is there is named: it
	// is then fetched at once, not when another asks for it.
	named := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?:src|href)="/(assets/[^"]+)"`).FindAllStringSubmatch(string(page), -1) {
		named[m[1]] = true
		_, err := fs.Stat(files, m[1])
		require.NoError(t, err)
	}
	require.NoError(t, fs.WalkDir(files, "assets", func(name string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		if entry.IsDir() && entry.Name() == "vendor" {
			return fs.SkipDir
		}
		if path.Ext(name) != ".js" && path.Ext(name) != ".css" {
			return nil
		}
		require.True(t, named[name], "%s is not named in index.html (a module: <link rel=modulepreload>)", name)
		text, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		require.NotRegexp(t, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://`, string(text), name)
		return nil
	}))
}
