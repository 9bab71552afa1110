// Package dashboard is the page that the reader serves at /: what is counted, what
// rises, and a post with its like button, all of it live.
//
// In comes nothing but the settings; the page itself asks the reader's API
// (openapi.yaml) and sends likes to the producer. Out go static files that are part of
// the program: HTML, CSS and ES modules as they stand in assets, no build step, nothing
// from another host.
package dashboard

import (
	"bytes"
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
)

//go:embed index.html assets
var files embed.FS

// Settings are what the page needs to know of its reader.
type Settings struct {
	// ProducerURL is where likes are sent, as a browser reaches it. Empty: the page has
	// no like button.
	ProducerURL string `json:"producer_url"`
}

// file is one that is served, as a whole.
type file struct {
	contentType string
	etag        string // strong: a hash of the content
	content     []byte
}

// handler serves files by their path.
type handler struct {
	files    map[string]file
	producer string // its origin, for the Content-Security-Policy
}

// Handler serves the page at /, its files at /assets/ and its settings at
// /dashboard.json. Any other path is 404.
func Handler(s Settings) http.Handler {
	h := &handler{files: map[string]file{}, producer: origin(s.ProducerURL)}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := files.ReadFile(name)
		h.files["/"+name] = newFile(contentType(name), content)
		return err
	})
	if err != nil {
		panic(fmt.Sprintf("dashboard: reading an embedded file: %v", err)) // cannot be: they are part of the program
	}
	settings, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("dashboard: encoding the settings: %v", err)) // cannot be: one string
	}
	h.files["/dashboard.json"] = newFile("application/json", settings)
	h.files["/"] = h.files["/index.html"]
	delete(h.files, "/index.html") // one address for one page
	return h
}

func newFile(contentType string, content []byte) file {
	hash := sha256.Sum256(content)
	return file{contentType: contentType, etag: `"` + base64.RawURLEncoding.EncodeToString(hash[:12]) + `"`, content: content}
}

// contentType does not ask the machine's own tables, which differ.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "text/plain; charset=utf-8"
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	f, ok := h.files[r.URL.Path]
	switch {
	case !ok:
		fail(w, http.StatusNotFound, "not-found", "There is nothing here", fmt.Sprintf("no route has the path %.200q", r.URL.Path))
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "method-not-allowed", "The method is not allowed here", fmt.Sprintf("%.20s is not allowed here; GET is", r.Method))
		return
	}
	header.Set("Content-Type", f.contentType)
	header.Set("Content-Security-Policy", h.policy(r.Host))
	// The files of one version belong together, so a browser asks each time; the ETag
	// makes that an empty answer.
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", f.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
}

// hostForm is what a host with a port looks like; nothing else gets into a policy.
var hostForm = regexp.MustCompile(`^[0-9A-Za-z.:\[\]_-]+$`)

// policy is the Content-Security-Policy: the page may use what its own host serves, and
// talk to it and to the producer. Some browsers do not take WebSockets of the own host
// for 'self', so they are named.
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

// origin is scheme and host of an address; empty if it has none or would not fit into a
// policy.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || !hostForm.MatchString(u.Host) {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// problem is an answer that is not a success (RFC 9457), as the API's.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func fail(w http.ResponseWriter, status int, slug, title, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// The client may be gone by now, which is its own affair.
	_ = json.NewEncoder(w).Encode(problem{Type: "urn:kudos:problem:" + slug, Title: title, Status: status, Detail: detail})
}
