package reader

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"kudos/httpserver/problem"
	"kudos/reader/view"
	"kudos/reader/wire"
)

// Header values that many responses share.
var (
	jsonType, yamlType = []string{"application/json"}, []string{"application/yaml"}
	noCache, private   = []string{"no-cache"}, []string{"private, no-cache"}
)

type reply struct {
	body                 []byte
	contentType, caching []string
	etag, asOf           string // "": none
}

// write writes the reply, or 304 if the client has it already. A failed write means that the client is gone.
func (a reply) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["Cache-Control"] = a.caching
	if a.asOf != "" {
		h.Set("Kudos-As-Of", a.asOf)
	}
	if a.etag != "" {
		h.Set("ETag", a.etag)
		if matches(r.Header["If-None-Match"], a.etag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h["Content-Type"] = a.contentType
	// Without it, a body that exceeds the server's buffer would be chunked.
	if len(a.body) > 2048 {
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	_, _ = w.Write(a.body)
}

// encode makes a reply that is requested too seldom to have its own encoder.
func encode(q *request, caching []string, body any) (reply, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return reply{}, fmt.Errorf("encoding the response to %s: %w", q.Request.URL.Path, err)
	}
	return reply{body: b, contentType: jsonType, caching: caching}, nil
}

// etagOf returns the weak entity tag of a response's content. It is the same from every reader.
func etagOf(content []byte) string {
	b := append(make([]byte, 0, 20), `W/"`...)
	return string(append(strconv.AppendUint(b, xxhash.Sum64(content), 16), '"'))
}

// matches compares weakly (RFC 9110, 13.1.2). Our tags contain no comma.
func matches(ifNoneMatch []string, etag string) bool {
	for _, line := range ifNoneMatch {
		for tag := range strings.SplitSeq(line, ",") {
			tag = strings.TrimSpace(tag)
			if tag == "*" || strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(etag, "W/") {
				return true
			}
		}
	}
	return false
}

// refusal is an error that becomes an error response.
type refusal struct {
	*problem.Problem
	AsOf  []wire.Position `json:"as_of,omitempty"` // with not-covered: how far the response would have gone
	again bool            // a retry may succeed soon
}

func (r *refusal) Error() string { return r.Detail }

const retryAfter = "1" // how long a client is told to wait before a retry, in seconds

func refuse(p *problem.Problem) *refusal      { return &refusal{Problem: p} }
func unavailable(p *problem.Problem) *refusal { return &refusal{Problem: p, again: true} }

func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	var no *refusal
	var notReady *view.NotReadyError
	switch {
	case errors.As(err, &no):
	case errors.As(err, &notReady):
		no = unavailable(problem.New(http.StatusServiceUnavailable, "not-ready",
			"Reader not ready", "%s", notReady.Error()))
	case errors.Is(err, view.ErrNoReactions):
		no = refuse(problem.New(http.StatusNotFound, "no-reactions", "This reader keeps counts only", "%s", err))
	default:
		a.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		no = refuse(problem.New(http.StatusInternalServerError, "internal",
			"Internal error", "the reader failed to answer; its log has the cause"))
	}
	if no.again {
		w.Header().Set("Retry-After", retryAfter)
	}
	problem.WriteBody(w, no.Status, no)
}
