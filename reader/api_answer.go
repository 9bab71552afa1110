package reader

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"kudos/httpserver/problem"
	"kudos/reader/view"
	"kudos/reader/wire"
)

// refusal is an answer that is not a success, on its way to the client.
type refusal struct {
	*problem.Problem
	// AsOf, with not-covered: how far the answer would have gone.
	AsOf []wire.Position `json:"as_of,omitempty"`
	// again: it may be otherwise in a moment.
	again bool
}

func (r *refusal) Error() string { return r.Detail }

// retryAfter is what a client is told to wait, in seconds, before it asks again.
const retryAfter = "1"

func refuse(p *problem.Problem) *refusal      { return &refusal{Problem: p} }
func unavailable(p *problem.Problem) *refusal { return &refusal{Problem: p, again: true} }

func invalid(errs ...problem.FieldError) *refusal {
	return refuse(problem.InvalidRequest(errs...))
}

// fail answers with what kept a request from its answer.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	var no *refusal
	var notReady *view.NotReadyError
	switch {
	case errors.As(err, &no):
	case errors.As(err, &notReady):
		no = unavailable(problem.New(http.StatusServiceUnavailable, "not-ready", "The reader is not ready for this", "%s", notReady.Error()))
	case errors.Is(err, view.ErrNoReactions):
		no = refuse(problem.New(http.StatusNotFound, "no-reactions", "This reader keeps counts only", "%s", err))
	default:
		a.log.Error("a request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		no = refuse(problem.New(http.StatusInternalServerError, "internal", "The reader failed", "the reader could not answer; its log says why"))
	}
	if no.again {
		w.Header().Set("Retry-After", retryAfter)
	}
	problem.WriteBody(w, no.Status, no)
}

// headers are values of headers that many answers share; nobody changes them.
type headers struct {
	json, yaml               []string
	public, private, noCache []string
}

func newHeaders(maxAge time.Duration) headers {
	public := "no-cache"
	if maxAge > 0 {
		public = fmt.Sprintf("public, max-age=%d", int64(maxAge.Seconds()))
	}
	return headers{
		json: []string{"application/json"}, yaml: []string{"application/yaml"},
		public: []string{public}, private: []string{"private, no-cache"}, noCache: []string{"no-cache"},
	}
}

// written is an answer as it is written.
type written struct {
	body                 []byte
	contentType, caching []string
	etag, asOf           string // "": has none
}

// write writes the answer, or that the client has it already. A client that is gone by
// now gets none: the error says nothing that its absence does not.
func (a *api) write(w http.ResponseWriter, r *http.Request, answer written) {
	h := w.Header()
	h["Cache-Control"] = answer.caching
	if answer.asOf != "" {
		h.Set("Kudos-As-Of", answer.asOf)
	}
	if answer.etag != "" {
		h.Set("ETag", answer.etag)
		if matches(r.Header["If-None-Match"], answer.etag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h["Content-Type"] = answer.contentType
	// What is longer than the server's buffer would go out in chunks.
	if len(answer.body) > 2048 {
		h.Set("Content-Length", strconv.Itoa(len(answer.body)))
	}
	_, _ = w.Write(answer.body)
}

// writeJSON writes what is asked for too seldom to have an encoder of its own.
func (a *api) writeJSON(w http.ResponseWriter, r *http.Request, caching []string, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding the answer to %s: %w", r.URL.Path, err)
	}
	a.write(w, r, written{body: b, contentType: a.headers.json, caching: caching})
	return nil
}

// etagOf is the weak entity tag of an answer's content: the same of every reader.
func etagOf(content []byte) string {
	b := append(make([]byte, 0, 20), `W/"`...)
	return string(append(strconv.AppendUint(b, xxhash.Sum64(content), 16), '"'))
}

// matches compares weakly (RFC 9110, 13.1.2). A tag of ours has no comma in it.
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
