package problem

import (
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
	var tooMuch *http.MaxBytesError
	switch {
	case errors.As(err, &tooMuch):
		return TooLarge("the body has more than %d bytes", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return New(http.StatusRequestTimeout, "request-timeout", "Request timeout",
			"the body did not arrive in time")
	}
	return InvalidRequest(FieldError{"body", string(schema.Undecodable), "ended early"})
}

// ParseFields decodes a JSON object and rejects unknown fields: a misspelled name would silently have no effect.
func ParseFields(raw []byte, whole string, known ...string) (map[string]json.RawMessage, *FieldError) {
	if len(raw) == 0 {
		return nil, &FieldError{whole, Empty, "is empty"}
	}
	fields := make(map[string]json.RawMessage, len(known)+1)
	err := json.Unmarshal(raw, &fields)
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongType) || err == nil && fields == nil:
		return nil, &FieldError{whole, string(schema.Undecodable), "is not a JSON object"}
	case err != nil:
		return nil, &FieldError{whole, string(schema.Undecodable), fmt.Sprintf("is not JSON: %v", err)}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) { // so that it always reports the same one
		if !slices.Contains(known, name) {
			return nil, Unknown(name, known...)
		}
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
