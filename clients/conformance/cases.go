// Package conformance checks the clients of kudos, in any language, and what other writers publish. README.md describes
// the protocol.
package conformance

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
)

//go:embed cases.json
var casesJSON []byte

// Case is one requirement. One without steps requires that the testee exits with 0 when its input ends.
type Case struct {
	ID    string `json:"id"`
	About string `json:"about"`
	Steps []Step `json:"steps,omitempty"`
}

// Step is a request to the testee, the HTTP requests that the testee must then send, and what it must answer: for the
// operation event, the decoded event. The request gets its id and base_url when it is sent.
type Step struct {
	Request map[string]any `json:"request"`
	HTTP    []Exchange     `json:"http,omitempty"`
	Want    map[string]any `json:"want"`
}

// Exchange is an HTTP request and what the server does with it.
type Exchange struct {
	// Request is "<method> <path>", then the query, sorted: " <name>=<value>". last_event_id stands for the header,
	// too; "<now>" is the time of the client, which a retry must repeat.
	Request string `json:"request,omitempty"`
	// Close closes the connection without a response: "unread" before the request is read, "read" after that. After the
	// chunks of a stream, it cuts off the response.
	Close      string          `json:"close,omitempty"`
	Status     int             `json:"status,omitempty"`
	Problem    string          `json:"problem,omitempty"`     // the problem's type without its prefix
	RetryAfter int             `json:"retry_after,omitempty"` // seconds; the next request must not arrive earlier
	Body       json.RawMessage `json:"body,omitempty"`
	Stream     []string        `json:"stream,omitempty"` // sent in chunks; the last stream of a step stays open
}

// Select returns the cases whose ids match.
func Select(only *regexp.Regexp) []Case {
	var cases []Case
	if err := json.Unmarshal(casesJSON, &cases); err != nil {
		panic(fmt.Sprintf("cases.json: %v", err)) // it is part of the program
	}
	return slices.DeleteFunc(cases, func(c Case) bool { return !only.MatchString(c.ID) })
}
