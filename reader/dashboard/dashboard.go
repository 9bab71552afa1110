// Package dashboard is the reader's page at /: totals, trending posts, a post, and the health of all processes.
//
// It serves embedded files, with no build step and nothing from another host, except the titles of posts. The page
// calls the reader's API (openapi.yaml) and sends likes to the producer.
package dashboard

import (
	"bytes"
	"cmp"
	"compress/gzip"
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
	"slices"
	"strings"
	"time"

	"kudos/httpserver/problem"
)

//go:embed index.html assets
var files embed.FS

type file struct {
	contentType string
	etag        string // a hash of the content; weak, since it may be compressed
	content     []byte
	compressed  []byte // by gzip
}

type handler struct {
	files   map[string]file
	origins []string // of the producer and the titles, for the Content-Security-Policy
}

// Settings go to the page. An empty one switches off what needs it: the like button, links, titles, link to Grafana.
type Settings struct {
	ProducerURL string `json:"producer_url"` // as a browser reaches it, like the others
	PostURL     string `json:"post_url"`     // with {post_id}
	TitleURL    string `json:"title_url"`    // with {post_id}
	GrafanaURL  string `json:"grafana_url"`
}

// Handler serves the page at /, its files at /assets/ and its settings at /dashboard.json. Any other path is 404.
func Handler(settings Settings) http.Handler {
	h := &handler{files: map[string]file{}, origins: []string{origin(settings.ProducerURL), origin(settings.TitleURL)}}
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
	h.join()
	text, err := json.Marshal(settings)
	if err != nil {
		panic(fmt.Sprintf("dashboard: encoding the settings: %v", err)) // cannot happen: they are strings
	}
	h.files["/dashboard.json"] = newFile("application/json", text)
	h.files["/"] = h.files["/index.html"]
	delete(h.files, "/index.html") // one URL for one page
	return h
}

func newFile(contentType string, content []byte) file {
	hash := sha256.Sum256(content)
	etag := `W/"` + base64.RawURLEncoding.EncodeToString(hash[:12]) + `"`
	var compressed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&compressed, gzip.BestCompression) // the level is valid
	_, _ = w.Write(content)                                        // to memory: cannot fail
	_ = w.Close()
	return file{contentType: contentType, etag: etag, content: content, compressed: compressed.Bytes()}
}

// A request for each style sheet and module would delay the page, so they are joined, in this order: a module comes
// after those that it imports. uPlot is a classic script.
var (
	styles  = []string{"vendor/uplot/uPlot.min", "theme", "layout", "parts"}
	modules = []string{"format", "dom", "route", "api", "status", "live", "csv", "titles", "charts", "history",
		"compare", "headline", "trending", "reactions", "likers", "post", "health", "app"}
	// The only forms in which modules import and export; a test requires it.
	importForm = regexp.MustCompile(`(?m)^import \{([^}]+)\} from '\./(\w+)\.js';$`)
	exportForm = regexp.MustCompile(`(?m)^export ((?:async )?function|class|const) (\w+)`)
)

func (h *handler) join() {
	css, js := "", string(h.files["/assets/vendor/uplot/uPlot.iife.min.js"].content)+"\nwindow.uPlot = uPlot;\n"
	for _, name := range styles {
		css += string(h.files["/assets/"+name+".css"].content) + "\n"
	}
	for _, name := range modules { // each is a function that returns its exports
		text, exports := string(h.files["/assets/"+name+".js"].content), ""
		for _, m := range exportForm.FindAllStringSubmatch(text, -1) {
			exports += m[2] + ", "
		}
		text = exportForm.ReplaceAllString(importForm.ReplaceAllString(text, "const {$1} = module_$2;"), "$1 $2")
		js += fmt.Sprintf("const module_%s = await (async () => {\n%s\nreturn { %s};\n})();\n", name, text, exports)
	}
	h.files["/assets/all.css"] = newFile(contentTypes[".css"], []byte(css))
	h.files["/assets/all.js"] = newFile(contentTypes[".js"], []byte(js))
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
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		content = f.compressed
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// hostForm matches a host, with or without a port. Nothing else gets into a policy.
var hostForm = regexp.MustCompile(`^[0-9A-Za-z.:\[\]_-]+$`)

// policy returns the Content-Security-Policy: the page may load what its own host serves, and connect to it and to the
// other origins. Some browsers do not count WebSockets to the own host as 'self', so they are named.
func (h *handler) policy(host string) string {
	connect := []string{"'self'"}
	if hostForm.MatchString(host) {
		connect = append(connect, "ws://"+host, "wss://"+host)
	}
	for _, o := range h.origins {
		if o != "" && !slices.Contains(connect, o) {
			connect = append(connect, o)
		}
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
