package dashboard

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit/apikit"
)

func ask(t *testing.T, h http.Handler, method, target string, headers ...string) apikit.Answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	apikit.SetHeaders(r, headers)
	return apikit.Ask(t, h, r)
}

func TestPageAndSettings(t *testing.T) {
	h := Handler("https://likes.example.com")
	page := ask(t, h, "GET", "/").Require(200).RequireHeader("Content-Type", "text/html; charset=utf-8")
	require.Contains(t, page.Body, "<title>kudos</title>")
	require.Empty(t, ask(t, h, "HEAD", "/").Require(200).Body)
	ask(t, h, "GET", "/dashboard.json").RequireJSON(200, `{"producer_url": "https://likes.example.com"}`)
}

func TestHeadersOfEveryFile(t *testing.T) {
	h := Handler("")
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
		a := ask(t, h, "GET", "/"+name).Require(200).RequireHeader("Content-Type", types[path.Ext(name)]).
			RequireHeader("X-Content-Type-Options", "nosniff").RequireHeader("Referrer-Policy", "no-referrer")
		require.Contains(t, a.Header.Get("Content-Security-Policy"), "default-src 'self'", name)
		return nil
	}))
	require.Greater(t, served, 10)
}

// A browser revalidates each time, and gets a file only if its content has changed.
func TestFilesAreNamedByTheirContent(t *testing.T) {
	h := Handler("")
	etagOf := func(h http.Handler, target string) string {
		return ask(t, h, "GET", target).RequireHeader("Cache-Control", "no-cache").Header.Get("ETag")
	}
	etag := etagOf(h, "/assets/app.js")
	require.Regexp(t, `^W/"[\w-]{16}"$`, etag)
	again := ask(t, h, "GET", "/assets/app.js", "If-None-Match", etag).Require(304).RequireHeader("ETag", etag)
	require.Empty(t, again.Body)

	zipped := ask(t, h, "GET", "/assets/trending.js", "Accept-Encoding", "gzip").Require(200)
	plain := ask(t, h, "GET", "/assets/trending.js").Require(200)
	require.Equal(t, "gzip", zipped.Header.Get("Content-Encoding"))
	require.Equal(t, "Accept-Encoding", plain.Header.Get("Vary"))
	require.Equal(t, plain.Header.Get("ETag"), zipped.Header.Get("ETag"))
	require.Less(t, len(zipped.Body), len(plain.Body)/2)

	require.NotEqual(t, etag, etagOf(h, "/"))
	require.NotEqual(t, etagOf(h, "/dashboard.json"), etagOf(Handler("http://a"), "/dashboard.json"))
}

func TestPolicyNamesWhoThePageMayTalkTo(t *testing.T) {
	for _, c := range []struct{ producer, host, want string }{
		{"", "kudos.example.com", "'self' ws://kudos.example.com wss://kudos.example.com"},
		{"", "[::1]:8081", "'self' ws://[::1]:8081 wss://[::1]:8081"},
		{"http://127.0.0.1:8080", "a:1", "'self' ws://a:1 wss://a:1 http://127.0.0.1:8080"},
		{"https://likes.example.com/kudos/", "a:1", "'self' ws://a:1 wss://a:1 https://likes.example.com"},
		// Nothing that a client sends gets into the policy.
		{"", "a;script-src *", "'self'"},
		{"", "a b", "'self'"},
		{"", "a,b", "'self'"},
		{"", "", "'self'"},
		{"https://a;b/", "a", "'self' ws://a wss://a"},
		{"javascript:alert(1)", "a", "'self' ws://a wss://a"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Host = c.host
		policy := apikit.Ask(t, Handler(c.producer), r).Header.Get("Content-Security-Policy")
		require.Contains(t, policy, "; connect-src "+c.want+"; ", "%+v", c)
	}
}

func TestOtherPathsAndMethods(t *testing.T) {
	h := Handler("")
	for _, target := range []string{"/v1/nothing", "/assets", "/assets/", "/assets/none.js", "/index.html",
		"/assets/../dashboard.go", "/favicon.ico"} {
		ask(t, h, "GET", target).RequireJSON(404, apikit.Problem(404, "not-found", "Not found",
			fmt.Sprintf("no route has the path %q", target)))
	}
	ask(t, h, "POST", "/").RequireHeader("Allow", "GET, HEAD").RequireJSON(405, apikit.Problem(405,
		"method-not-allowed", "Method not allowed", "POST is not allowed; allowed: GET"))
}

// TestFilesKeepToThePolicy finds what the policy forbids, which would otherwise fail only in a browser.
func TestFilesKeepToThePolicy(t *testing.T) {
	page, err := fs.ReadFile(files, "index.html")
	require.NoError(t, err)
	inline := regexp.MustCompile(`<script(?:[^>]*)>[^<]|<style|\sstyle=|\son[a-z]+=|javascript:`)
	require.Empty(t, inline.FindAllString(string(page), -1), "inline script or style")

	// The page names existing files, and each module, so that it is fetched at once, not only when it is imported.
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
		require.NotRegexp(t, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://`,
			string(text), name)
		return nil
	}))
}
