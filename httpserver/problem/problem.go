// Package problem is how the roles that serve HTTP say no: problem details of RFC 9457,
// and how they and other JSON answers are written.
//
// In comes what is wrong; out goes an answer whose type tells the cases of a status
// apart for a program, and whose detail tells a person what happened. The documents of
// the roles list the types that each of them has.
//
//   - problem.go: the problems that more than one role has;
//   - request.go: what is wrong with a request, found in one way by all of them;
//   - write.go: answers, and routes by method.
package problem

import (
	"errors"
	"fmt"
	"net/http"

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

// Reasons beyond schema's, which are why an event is poison.
const (
	UnknownField = "unknown_field"
	UnknownValue = "unknown_value"
	Empty        = "empty"
)

// New makes a problem whose type is the slug.
func New(status int, slug, title, format string, args ...any) *Problem {
	return &Problem{Type: "urn:kudos:problem:" + slug, Title: title, Status: status, Detail: fmt.Sprintf(format, args...)}
}

// InvalidRequest has one error or more.
func InvalidRequest(errs ...FieldError) *Problem {
	p := New(http.StatusBadRequest, "invalid-request", "The request is not valid", "%s: %s", errs[0].Field, errs[0].Detail)
	p.Errors = errs
	return p
}

// TooLarge is a request above a limit, which the detail names.
func TooLarge(format string, args ...any) *Problem {
	return New(http.StatusRequestEntityTooLarge, "too-large", "The request is too large", format, args...)
}

// UnsupportedMediaType is a body in another form than those that are read.
func UnsupportedMediaType(format string, args ...any) *Problem {
	return New(http.StatusUnsupportedMediaType, "unsupported-media-type", "The body has an unsupported form", format, args...)
}

// TooManyRequests refuses what is above a number at a time.
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
	fe := FieldError{poison.Field, string(poison.Reason), poison.Detail}
	if fe.Field == "" {
		fe.Field = whole
	}
	return fe
}
