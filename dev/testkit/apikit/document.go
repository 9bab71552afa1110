package apikit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"
)

// Document is an OpenAPI document.
type Document struct {
	*openapi3.T
	router routers.Router
}

// LoadDocument parses a document and validates it.
func LoadDocument(t testing.TB, text string) *Document {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData([]byte(text))
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	router, err := legacy.NewRouter(doc)
	require.NoError(t, err)
	return &Document{doc, router}
}

// RequireServed requires document and handlers to have the same operations. Those in elsewhere must not be served.
func (d *Document) RequireServed(t testing.TB, served map[string]map[string]http.HandlerFunc, elsewhere ...string) {
	t.Helper()
	for path, item := range d.Paths.Map() {
		for method, operation := range item.Operations() {
			if slices.Contains(elsewhere, operation.OperationID) {
				require.NotContains(t, served, path)
			} else {
				require.Contains(t, served[path], method, path)
			}
		}
	}
	for path, methods := range served {
		for method := range methods {
			require.NotNil(t, d.Paths.Value(path), "openapi.yaml lacks %s", path)
			require.NotNil(t, d.Paths.Value(path).GetOperation(method), "openapi.yaml lacks %s %s", method, path)
		}
	}
}

// Hold validates a response against the document. broken is how the request violates it; found is false if the document
// has no such operation. The library does not parse the lines of a batch.
func (d *Document) Hold(a Answer, method, target, body string, header http.Header) (broken error, found bool) {
	a.T.Helper()
	if method == http.MethodHead {
		method = http.MethodGet
	}
	req := httptest.NewRequest(method, target, strings.NewReader(body))
	req.Header = header.Clone()
	route, params, err := d.router.FindRoute(req)
	if err != nil {
		return err, false
	}
	options := &openapi3filter.Options{
		IncludeResponseStatus: true, MultiError: true, SkipSettingDefaults: true,
		ExcludeRequestBody: strings.HasPrefix(target, "/v1/likes:batch"),
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
	}
	asked := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route, Options: options}
	require.NoError(a.T, openapi3filter.ValidateResponse(a.T.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: asked, Status: a.Status, Header: a.Header, Options: options,
		Body: io.NopCloser(strings.NewReader(a.Body)),
	}), "response to %s %s: status %d: %s", method, target, a.Status, a.Body)
	return openapi3filter.ValidateRequest(a.T.Context(), asked), true
}
