// Package apikit has helpers for tests of the HTTP APIs: an embedded broker, a running role, requests and their
// answers, and the OpenAPI document that validates both. Only _test files import it.
package apikit

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
)

// Answer is the response to a request.
type Answer struct {
	T      testing.TB
	Status int
	Header http.Header
	Body   string
}

// Do sends a request; headers are name and value pairs. A nil client means a new connection. Any goroutine may call it.
func Do(t testing.TB, client *http.Client, method, url, body string, headers ...string) (*http.Response, error) {
	if client == nil {
		client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	}
	req, err := http.NewRequestWithContext(testkit.Context(t), method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	SetHeaders(req, headers)
	return client.Do(req)
}

// Send sends a request and reads the whole response.
func Send(t testing.TB, client *http.Client, method, url, body string, headers ...string) (Answer, error) {
	resp, err := Do(t, client, method, url, body, headers...)
	if err != nil {
		return Answer{T: t, Body: err.Error()}, err
	}
	return read(t, resp)
}

// MustSend is Send, and requires a response.
func MustSend(t testing.TB, client *http.Client, method, url, body string, headers ...string) Answer {
	t.Helper()
	a, err := Send(t, client, method, url, body, headers...)
	require.NoError(t, err)
	return a
}

// Ask passes a request to a handler.
func Ask(t testing.TB, h http.Handler, req *http.Request) Answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return Answer{t, w.Code, w.Header(), w.Body.String()}
}

// Read reads a whole response.
func Read(t testing.TB, resp *http.Response) Answer {
	t.Helper()
	a, err := read(t, resp)
	require.NoError(t, err, "the response must be complete")
	return a
}

func read(t testing.TB, resp *http.Response) (Answer, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Answer{t, resp.StatusCode, resp.Header, string(body)}, err
}

// SetHeaders sets headers, given as name and value pairs.
func SetHeaders(req *http.Request, headers []string) {
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Set(pair[0], pair[1])
	}
}

// Decode decodes the JSON body.
func (a Answer) Decode(into any) {
	a.T.Helper()
	require.NoError(a.T, json.Unmarshal([]byte(a.Body), into), a.Body)
}

// Require requires a status.
func (a Answer) Require(status int) Answer {
	a.T.Helper()
	require.Equal(a.T, status, a.Status, a.Body)
	return a
}

// RequireHeader requires a header value; "" means no header.
func (a Answer) RequireHeader(name, want string) Answer {
	a.T.Helper()
	require.Equal(a.T, want, a.Header.Get(name), name)
	return a
}

// RequireJSON requires a status, a JSON body, and the media type of that status.
func (a Answer) RequireJSON(status int, want string) Answer {
	a.T.Helper()
	a.Require(status)
	require.JSONEq(a.T, want, a.Body)
	if status >= 400 {
		return a.RequireHeader("Content-Type", "application/problem+json")
	}
	return a.RequireHeader("Content-Type", "application/json")
}

// RequireProblem requires a problem document whose detail contains words.
func (a Answer) RequireProblem(status int, slug, words string) Answer {
	a.T.Helper()
	a.Require(status).RequireHeader("Content-Type", "application/problem+json")
	var p struct {
		Type, Detail string
		Status       int
	}
	a.Decode(&p)
	require.Equal(a.T, "urn:kudos:problem:"+slug, p.Type)
	require.Equal(a.T, status, p.Status)
	require.Contains(a.T, p.Detail, words)
	return a
}

// RequireInvalid requires a 400 with exactly one error.
func (a Answer) RequireInvalid(field, reason, detail string) {
	a.T.Helper()
	a.RequireJSON(http.StatusBadRequest, Problem(http.StatusBadRequest, "invalid-request", "The request is not valid",
		field+": "+detail, Errors(FieldError(field, reason, detail))))
}

// Problem returns the body of a problem document; more are additional members.
func Problem(status int, slug, title, detail string, more ...string) string {
	members := append([]string{fmt.Sprintf(`"type":"urn:kudos:problem:%s","title":%q,"status":%d,"detail":%q`,
		slug, title, status, detail)}, more...)
	return "{" + strings.Join(members, ",") + "}"
}

// Errors is the member of a problem that lists the invalid parts of the request, each a FieldError.
func Errors(errs ...string) string { return `"errors":[` + strings.Join(errs, ",") + "]" }

// FieldError describes one invalid part of a request.
func FieldError(field, reason, detail string) string {
	return fmt.Sprintf(`{"field":%q,"reason":%q,"detail":%q}`, field, reason, detail)
}
