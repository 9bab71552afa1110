// Package problem builds the error responses of the roles that serve HTTP, as problem details (RFC 9457), and checks
// requests. Programs distinguish problems by type; people read the detail. A role's OpenAPI document lists its types.
package problem

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
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
	Repeated     = "repeated"
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

// ParseID parses an id in a path or query: decimal, above 0, 64 bits.
func ParseID(field, s string) (uint64, *FieldError) {
	id, err := strconv.ParseUint(s, 10, 64)
	switch {
	case err != nil || len(s) > len("18446744073709551615"):
		return 0, NotANumber(field, s)
	case id == 0:
		return 0, &FieldError{field, string(schema.ZeroID), "is 0"}
	}
	return id, nil
}

// NotANumber says that a field's value is not a whole number in range.
func NotANumber(field, s string) *FieldError {
	return &FieldError{field, string(schema.Undecodable), fmt.Sprintf("%.40q is not a whole number in range", s)}
}

// RequireMediaType returns a 415 problem if the body is compressed or has none of the types.
func RequireMediaType(r *http.Request, types ...string) *Problem {
	const slug, title = "unsupported-media-type", "Unsupported media type"
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return New(http.StatusUnsupportedMediaType, slug, title,
			"Content-Encoding %.40q is not supported; send the body uncompressed", coding)
	}
	given := r.Header.Get("Content-Type")
	if mediaType, _, err := mime.ParseMediaType(given); err == nil && slices.Contains(types, mediaType) {
		return nil
	}
	return New(http.StatusUnsupportedMediaType, slug, title,
		"Content-Type is %.80q; send %s", given, strings.Join(types, " or "))
}

// UnreadBody returns the problem of a body that could not be read; limit is its maximum size in bytes.
func UnreadBody(err error, limit int64) *Problem {
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return TooLarge("the body has more than %d bytes", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return New(http.StatusRequestTimeout, "request-timeout", "Request timeout", "the body did not arrive in time")
	}
	return InvalidRequest(FieldError{"body", string(schema.Undecodable), "ended early"})
}

// ParseFields decodes a JSON object. It rejects unknown fields: a misspelled name would silently have no effect. It
// rejects a field that is repeated, also as userId and user_id: readers of JSON differ in which one they take.
func ParseFields(raw []byte, whole string, known ...string) (map[string]json.RawMessage, *FieldError) {
	if len(raw) == 0 {
		return nil, &FieldError{whole, Empty, "is empty"}
	}
	fields := make(map[string]json.RawMessage, len(known)+1)
	err := json.Unmarshal(raw, &fields)
	switch {
	case errors.As(err, new(*json.UnmarshalTypeError)) || err == nil && fields == nil:
		return nil, &FieldError{whole, string(schema.Undecodable), "is not a JSON object"}
	case err != nil:
		return nil, &FieldError{whole, string(schema.Undecodable), fmt.Sprintf("is not JSON: %v", err)}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) { // so that it always reports the same one
		if !slices.Contains(known, name) {
			return nil, Unknown(name, known...)
		}
	}
	given, values := map[string]bool{}, json.NewDecoder(bytes.NewReader(raw))
	for _, _ = values.Token(); values.More(); _ = values.Decode(new(json.RawMessage)) { // cannot fail: raw is valid
		token, _ := values.Token()
		name := token.(string)
		field := strings.ToLower(strings.ReplaceAll(name, "_", ""))
		if given[field] {
			return nil, &FieldError{name, Repeated, "is given more than once"}
		}
		given[field] = true
	}
	return fields, nil
}

// Unknown says that a field or parameter does not exist; known are those that do.
func Unknown(name string, known ...string) *FieldError {
	detail := "is unknown; allowed: " + strings.Join(known, ", ")
	if len(known) == 0 {
		detail = "is unknown; none is allowed"
	}
	return &FieldError{fmt.Sprintf("%.40s", name), UnknownField, detail}
}
