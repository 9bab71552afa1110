package httpserver

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
)

// MinCompressed is the size in bytes from which Compress compresses: a page of 50 counts takes longer to compress than
// to send.
const MinCompressed = 4 << 10

// coder is a content coding, with its idle writers: they are large.
type coder struct {
	name    string
	writers sync.Pool // of codingWriter
}

type codingWriter interface {
	io.WriteCloser
	Reset(to io.Writer)
}

// coders are the content codings, the smaller result first. Their levels take little more time than the fastest ones.
var coders = []*coder{
	{name: "br", writers: sync.Pool{New: func() any { return brotli.NewWriterV2(nil, 4) }}},
	{name: "gzip", writers: sync.Pool{New: func() any {
		w, _ := gzip.NewWriterLevel(nil, 3) // the level exists
		return w
	}}},
}

// Compress returns a response's body in the content coding that it puts into the header h: one that the request
// accepts, if the body is large. A caller that may have a large body adds Accept-Encoding to Vary. The entity tag must
// be weak, since it is the same in all codings.
func Compress(h http.Header, r *http.Request, body []byte) []byte {
	if len(body) < MinCompressed {
		return body
	}
	for _, c := range coders {
		if !c.acceptable(r) {
			continue
		}
		var out bytes.Buffer
		w := c.writers.Get().(codingWriter)
		w.Reset(&out)
		_, _ = w.Write(body) // a Buffer takes all
		_ = w.Close()
		c.writers.Put(w)
		h.Set("Content-Encoding", c.name)
		h.Set("Content-Length", strconv.Itoa(out.Len()))
		return out.Bytes()
	}
	return body
}

// acceptable reports whether the request names the coding with a weight above 0 (RFC 9110, 12.5.3).
func (c *coder) acceptable(r *http.Request) bool {
	for _, line := range r.Header["Accept-Encoding"] {
		for item := range strings.SplitSeq(line, ",") {
			name, weight, _ := strings.Cut(item, ";")
			if strings.EqualFold(strings.TrimSpace(name), c.name) {
				_, q, weighted := strings.Cut(weight, "=")
				return !weighted || strings.Trim(strings.TrimSpace(q), "0.") != ""
			}
		}
	}
	return false
}
