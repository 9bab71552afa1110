package live

import (
	"encoding/json"
	"fmt"
	"net/http"

	"kudos/schema"
)

type problem struct {
	Type   string       `json:"type"`
	Title  string       `json:"title"`
	Status int          `json:"status"`
	Detail string       `json:"detail"`
	Errors []fieldError `json:"errors,omitempty"`
}

type fieldError struct {
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

const (
	undecodable  = string(schema.Undecodable)
	unknownField = "unknown_field"
	empty        = "empty"
	repeated     = "repeated"
	tooMany      = "too_many"
)

func newProblem(status int, slug, title, format string, args ...any) *problem {
	return &problem{Type: "urn:kudos:problem:" + slug, Title: title, Status: status, Detail: fmt.Sprintf(format, args...)}
}

func invalid(field, reason, format string, args ...any) *problem {
	e := fieldError{field, reason, fmt.Sprintf(format, args...)}
	p := newProblem(http.StatusBadRequest, "invalid-request", "The request is not valid", "%s: %s", e.Field, e.Detail)
	p.Errors = []fieldError{e}
	return p
}

func writeProblem(w http.ResponseWriter, p *problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}
