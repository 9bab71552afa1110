// Package dashboard is the reader's page at /: totals, trending posts, and a post with its like button, all live.
//
// It serves embedded files: HTML, CSS and ES modules as they are in assets, with no build step and nothing from another
// host. The page calls the reader's API (openapi.yaml) and sends likes to the producer.
package dashboard

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	"kudos/httpserver"
	"kudos/httpserver/problem"
)

//go:embed index.html assets
var files embed.FS

type file struct {
	contentType string
	etag        string // a hash of the content; weak, since it may be compressed
	content     []byte
}

type handler struct {
	files    map[string]file
	producer string // its origin, for the Content-Security-Policy
}

// Handler serves the page at /, its files at /assets/ and its settings at /dashboard.json. Any other path is 404.
// producerURL is the producer as a browser reaches it; empty: the page has no like button.
func Handler(producerURL string) http.Handler {
	h := &handler{files: map[string]file{}, producer: origin(producerURL)}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := files.ReadFile(name)
		h.files["/"+name] = newFile(cmp.Or(contentTypes[path.Ext(name)], "text/plain; charset=utf-8"), content)
		return err
	})
	if err != nil {
		panic(fmt.Sprintf("dashboard: reading an embedded file: %v", err)) // cannot happen: they are embedded
	}
	settings, err := json.Marshal(map[string]string{"producer_url": producerURL})
	if err != nil {
		panic(fmt.Sprintf("dashboard: encoding the settings: %v", err)) // cannot happen: it is one string
	}
	h.files["/dashboard.json"] = newFile("application/json", settings)
	h.files["/"] = h.files["/index.html"]
	delete(h.files, "/index.html") // one URL for one page
	return h
}

func newFile(contentType string, content []byte) file {
	hash := sha256.Sum256(content)
	etag := `W/"` + base64.RawURLEncoding.EncodeToString(hash[:12]) + `"`
	return file{contentType: contentType, etag: etag, content: content}
}

// contentTypes replaces the machine's own tables, which differ.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	f, ok := h.files[r.URL.Path]
	switch {
	case !ok:
		problem.Write(w, problem.NotFound(r.URL.Path))
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		problem.Write(w, problem.MethodNotAllowed(r.Method, "GET"))
		return
	}
	header.Set("Content-Type", f.contentType)
	header.Set("Content-Security-Policy", h.policy(r.Host))
	// The files of one version belong together, so the browser must revalidate each time; the ETag makes that a 304.
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", f.etag)
	header.Set("Vary", "Accept-Encoding")
	content := f.content
	if r.Header["Range"] == nil {
		content = httpserver.Compress(header, r, content)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// hostForm matches a host, with or without a port. Nothing else gets into a policy.
var hostForm = regexp.MustCompile(`^[0-9A-Za-z.:\[\]_-]+$`)

// policy returns the Content-Security-Policy: the page may load what its own host serves, and connect to it and to the
// producer. Some browsers do not count WebSockets to the own host as 'self', so they are named.
func (h *handler) policy(host string) string {
	connect := []string{"'self'"}
	if hostForm.MatchString(host) {
		connect = append(connect, "ws://"+host, "wss://"+host)
	}
	if h.producer != "" {
		connect = append(connect, h.producer)
	}
	return strings.Join([]string{
		"default-src 'self'",
		"connect-src " + strings.Join(connect, " "),
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "object-src 'none'",
	}, "; ")
}

// origin returns scheme and host of a URL, or "" if it has none or they do not fit into a policy.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || !hostForm.MatchString(u.Host) {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
