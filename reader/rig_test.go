package reader

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/dev/testkit/apikit"
)

const (
	patience = testkit.Patience

	likesOf1 = "/v1/posts/1/likes"
	byBody   = "/v1/likes:get"
	overTime = "/v1/analytics/likes"
)

// rig is an API on fakes. Every request and response is validated against openapi.yaml.
type rig struct {
	*api
	*apikit.Role // for its metrics; it does not run
	likes        *fakeLikes
	rankings     *fakeRankings
	logged       *bytes.Buffer
	doc          *apikit.Document
}

func newRig(t testing.TB, change func(*Options), h history) *rig {
	t.Helper()
	o := DefaultOptions()
	if change != nil {
		change(&o)
	}
	require.NoError(t, o.Validate())
	r := &rig{
		Role: apikit.NewRole(t), likes: newFakeLikes(), rankings: &fakeRankings{}, logged: &bytes.Buffer{},
		doc: apikit.LoadDocument(t, document),
	}
	var err error
	r.api, err = newAPI(o, r.likes, r.rankings, h, slog.New(slog.NewTextHandler(r.logged, nil)), r.Metrics)
	require.NoError(t, err)
	return r
}

// ask sends a request; headers come as pairs.
func (r *rig) ask(method, target, body string, headers ...string) apikit.Answer {
	r.T.Helper()
	return r.askWithin(context.Background(), method, target, strings.NewReader(body), headers...)
}

func (r *rig) get(target string, headers ...string) apikit.Answer {
	r.T.Helper()
	return r.ask(http.MethodGet, target, "", headers...)
}

// getGone is get by a client that has disconnected.
func (r *rig) getGone(target string) apikit.Answer {
	r.T.Helper()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	return r.askWithin(gone, http.MethodGet, target, http.NoBody)
}

func (r *rig) post(target, body string) apikit.Answer {
	r.T.Helper()
	return r.ask(http.MethodPost, target, body, "Content-Type", "application/json")
}

func (r *rig) askWithin(
	ctx context.Context, method, target string, body io.Reader, headers ...string,
) apikit.Answer {
	r.T.Helper()
	var sent strings.Builder
	req := httptest.NewRequestWithContext(ctx, method, target, io.TeeReader(body, &sent))
	apikit.SetHeaders(req, headers)
	a := apikit.Ask(r.T, r.api, req)
	r.hold(method, target, sent.String(), req.Header, a)
	return a
}

// hold validates an exchange against the document. Only a request that is rejected as invalid may violate it.
func (r *rig) hold(method, target, body string, header http.Header, a apikit.Answer) {
	r.T.Helper()
	var broken error
	found := false
	// The router ignores an additional /.
	if !strings.Contains(a.Body, "urn:kudos:problem:not-found") {
		broken, found = r.doc.Hold(a, method, target, body, header)
	}
	switch {
	case !found:
		require.Contains(r.T, []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNoContent}, a.Status,
			"%s %s is not in the document: %v", method, target, broken)
	case broken != nil:
		require.Contains(r.T, []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType, http.StatusRequestTimeout, http.StatusTooManyRequests}, a.Status,
			"%s %s violates the document but was accepted: %v", method, target, broken)
	}
	if a.Status >= 400 {
		r.holdProblem(a)
	}
}

func (r *rig) holdProblem(a apikit.Answer) {
	r.T.Helper()
	a.RequireHeader("Content-Type", "application/problem+json").RequireHeader("Cache-Control", "no-store")
	var value map[string]any
	a.Decode(&value)
	problem := r.doc.Components.Schemas["Problem"].Value
	require.NoError(r.T, problem.VisitJSON(value), a.Body)
	require.EqualValues(r.T, a.Status, value["status"])
	kind := strings.TrimPrefix(value["type"].(string), "urn:kudos:problem:")
	require.Contains(r.T, problem.Description, kind, "the document lists the types")
	again := ""
	if a.Status == http.StatusTooManyRequests || (a.Status == 503 && kind != "no-mysql") {
		again = "1"
	}
	a.RequireHeader("Retry-After", again)
}
