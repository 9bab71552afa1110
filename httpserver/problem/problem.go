// Package problem builds the error responses of the roles that serve HTTP, as problem details (RFC 9457), and has the
// request checks that they share (request.go). Programs distinguish problems by type; people read the detail. The
// OpenAPI document of each role lists its types.
package problem

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"kudos/schema"
)

// Problem is the body of an error response. A role that has more to say embeds it.
type Problem struct {
	Type   string       `json:"type"`
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail"`
	Errors []FieldError `json:"errors,omitempty"` // the parts of the request at fault
}

// FieldError is what is wrong with one part of a request. Reason is a word for programs, Detail a sentence for people.
type FieldError struct {
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// Reasons in addition to those for which schema rejects an event.
const (
	UnknownField = "unknown_field"
	UnknownValue = "unknown_value"
	Empty        = "empty"
)

// New returns a problem of type urn:kudos:problem:slug.
func New(status int, slug, title, format string, args ...any) *Problem {
	detail := fmt.Sprintf(format, args...)
	return &Problem{Type: "urn:kudos:problem:" + slug, Title: title, Status: status, Detail: detail}
}

// InvalidRequest is a 400 problem with at least one error.
func InvalidRequest(errs ...FieldError) *Problem {
	first := errs[0]
	p := New(http.StatusBadRequest, "invalid-request", "The request is not valid", "%s: %s", first.Field, first.Detail)
	p.Errors = errs
	return p
}

// TooLarge is a 413 problem: the request exceeds a limit, which the detail names.
func TooLarge(format string, args ...any) *Problem {
	return New(http.StatusRequestEntityTooLarge, "too-large", "The request is too large", format, args...)
}

// TooManyRequests is a 429 problem: too many concurrent requests.
func TooManyRequests(format string, args ...any) *Problem {
	return New(http.StatusTooManyRequests, "too-many-requests", "Too many concurrent requests", format, args...)
}

// NotFound is a 404 problem: no route has the path.
func NotFound(path string) *Problem {
	return New(http.StatusNotFound, "not-found", "Not found", "no route has the path %.200q", path)
}

// MethodNotAllowed is a 405 problem; allow lists the methods of the route.
func MethodNotAllowed(method, allow string) *Problem {
	return New(http.StatusMethodNotAllowed, "method-not-allowed", "Method not allowed",
		"%.20s is not allowed; allowed: %s", method, allow)
}

// FieldErrorOf converts a schema.PoisonError. whole names the event, for an error that belongs to no single field.
func FieldErrorOf(err error, whole string) FieldError {
	var poison *schema.PoisonError
	if !errors.As(err, &poison) {
		return FieldError{whole, string(schema.Undecodable), err.Error()}
	}
	return FieldError{cmp.Or(poison.Field, whole), string(poison.Reason), poison.Detail}
}

// Write writes a problem as the response.
func Write(w http.ResponseWriter, p *Problem) { WriteBody(w, p.Status, p) }

// WriteBody writes a body that embeds a Problem.
func WriteBody(w http.ResponseWriter, status int, body any) {
	writeJSON(w, status, "application/problem+json", body)
}

// Answer writes a JSON response that must not be cached.
func Answer(w http.ResponseWriter, status int, body any) {
	writeJSON(w, status, "application/json", body)
}

func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// ByMethod dispatches on the method, with problems as errors, unlike ServeMux. GET also serves HEAD. No methods: 404.
func ByMethod(methods map[string]http.HandlerFunc) http.HandlerFunc {
	all := maps.Clone(methods)
	if get, ok := all[http.MethodGet]; ok {
		all[http.MethodHead] = get
	}
	allow := strings.Join(slices.Sorted(maps.Keys(all)), ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		if handle, ok := all[r.Method]; ok {
			handle(w, r)
			return
		}
		if len(all) == 0 {
			Write(w, NotFound(r.URL.Path))
			return
		}
		w.Header().Set("Allow", allow)
		Write(w, MethodNotAllowed(r.Method, allow))
	}
}
