// Package problem is how the roles that serve HTTP say no: problem details (RFC 9457), and what finds in one way what
// is wrong with a request (request.go). The type of a problem tells the cases of a status apart for a program, its
// detail tells a person what happened; the OpenAPI document of a role lists the types that it has.
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

// Problem is an answer that is not a success. A role that has more to say embeds it.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Errors name the parts of the request at fault.
	Errors []FieldError `json:"errors,omitempty"`
}

// FieldError is what is wrong with one part of a request. Reason is one word for a
// program, Detail a sentence for a person.
type FieldError struct {
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// Reasons beyond those for which schema rejects an event.
const (
	UnknownField = "unknown_field"
	UnknownValue = "unknown_value"
	Empty        = "empty"
)

// New makes a problem whose type is the slug.
func New(status int, slug, title, format string, args ...any) *Problem {
	detail := fmt.Sprintf(format, args...)
	return &Problem{Type: "urn:kudos:problem:" + slug, Title: title, Status: status, Detail: detail}
}

// InvalidRequest has one error or more.
func InvalidRequest(errs ...FieldError) *Problem {
	first := errs[0]
	p := New(http.StatusBadRequest, "invalid-request", "The request is not valid", "%s: %s", first.Field, first.Detail)
	p.Errors = errs
	return p
}

// TooLarge is a request above a limit, which the detail names.
func TooLarge(format string, args ...any) *Problem {
	return New(http.StatusRequestEntityTooLarge, "too-large", "The request is too large", format, args...)
}

// TooManyRequests rejects a request above a number of concurrent ones.
func TooManyRequests(format string, args ...any) *Problem {
	return New(http.StatusTooManyRequests, "too-many-requests", "Too many requests at a time", format, args...)
}

// NotFound is a path that no route has.
func NotFound(path string) *Problem {
	return New(http.StatusNotFound, "not-found", "There is nothing here", "no route has the path %.200q", path)
}

// MethodNotAllowed is a route that has other methods.
func MethodNotAllowed(method, allow string) *Problem {
	return New(http.StatusMethodNotAllowed, "method-not-allowed", "The method is not allowed here",
		"%.20s is not allowed here; %s is", method, allow)
}

// FieldErrorOf tells a poison error by field; whole stands for the event itself.
func FieldErrorOf(err error, whole string) FieldError {
	var poison *schema.PoisonError
	if !errors.As(err, &poison) {
		return FieldError{whole, string(schema.Undecodable), err.Error()}
	}
	return FieldError{cmp.Or(poison.Field, whole), string(poison.Reason), poison.Detail}
}

// Write answers with a problem.
func Write(w http.ResponseWriter, p *Problem) { WriteBody(w, p.Status, p) }

// WriteBody answers with a body that has a problem's members and more.
func WriteBody(w http.ResponseWriter, status int, body any) {
	writeJSON(w, status, "application/problem+json", body)
}

// Answer writes a success that is for this request only.
func Answer(w http.ResponseWriter, status int, body any) {
	writeJSON(w, status, "application/json", body)
}

func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that left needs no answer
}

// ByMethod calls the method's handler, that of GET also for HEAD; without methods there is nothing at the path.
// ServeMux could do that, but answers in plain text what it does not know.
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
