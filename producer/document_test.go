package producer

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"
)

// The document and the handlers have the same operations.
func TestDocumentIsWhatIsServed(t *testing.T) {
	r := start(t, nil)
	doc, err := openapi3.NewLoader().LoadFromData([]byte(document))
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	served := r.served()
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			require.Contains(t, served[path], method, path)
		}
	}
	for path, methods := range served {
		for method := range methods {
			require.NotNil(t, doc.Paths.Value(path), "openapi.yaml lacks %s", path)
			require.NotNil(t, doc.Paths.Value(path).GetOperation(method), "openapi.yaml lacks %s %s", method, path)
		}
	}
	a := r.send("GET", "/openapi.yaml", "")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "application/yaml", a.header.Get("Content-Type"))
	require.Equal(t, document, a.body)
}

// Answers of each kind are as the document has them.
func TestAnswersAreAsDocumented(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData([]byte(document))
	require.NoError(t, err)
	router, err := legacy.NewRouter(doc)
	require.NoError(t, err)
	r := start(t, func(o *Options) { behindGateway(o); o.UserRate, o.UserBurst = 0.001, 7 })
	const likes, batch, ndjson = "/v1/posts/7/likes", "/v1/likes:batch", "application/x-ndjson"
	for _, tt := range []struct {
		user, method, path, contentType, body string
		status                                int
	}{
		{"9", "PUT", likes + "/9?time_ms=5&region=DE", "", "", 202},
		{"9", "DELETE", likes + "/9", "", "", 202},
		{"9", "PUT", "/v1/posts/7/dislikes/9", "", "", 202},
		{"9", "DELETE", "/v1/posts/7/dislikes/9", "", "", 202},
		{"9", "POST", likes, "application/json", `{"user_id":"9","time_ms":5,"region":"DE"}`, 202},
		{"9", "POST", batch, ndjson, line(7, 9) + "\n" + line(7, 8) + "\n{}", 202},
		{"9", "POST", batch + "?lines=errors", ndjson, line(7, 8), 403},
		{"9", "POST", batch, ndjson, "{}", 400},
		{"9", "PUT", likes + "/me", "", "", 400},
		{"9", "PUT", likes + "/8", "", "", 403},
		{"me", "PUT", likes + "/9", "", "", 401},
		{"9", "POST", likes, "text/plain", "me", 415},
		{"9", "POST", likes, "application/json", strings.Repeat(" ", 5000), 413},
		{"9", "POST", batch, ndjson, line(7, 9) + "\n" + line(7, 9), 202},
		{"9", "PUT", likes + "/9", "", "", 429},
		{"9", "POST", batch, ndjson, line(7, 9), 429},
	} {
		a := r.send(tt.method, tt.path, tt.body, "X-User-Id", tt.user, "Content-Type", tt.contentType)
		require.Equal(t, tt.status, a.status, "%s %s: %s", tt.method, tt.path, a.body)
		req := httptest.NewRequest(tt.method, tt.path, strings.NewReader(tt.body))
		req.Header.Set("X-User-Id", tt.user)
		req.Header.Set("Content-Type", tt.contentType)
		route, params, err := router.FindRoute(req)
		require.NoError(t, err, "%s %s", tt.method, tt.path)
		// A batch's lines are nothing that the library reads.
		options := &openapi3filter.Options{
			IncludeResponseStatus: true, ExcludeRequestBody: strings.HasPrefix(tt.path, batch), SkipSettingDefaults: true,
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
		}
		asked := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route, Options: options}
		if tt.status == http.StatusAccepted {
			require.NoError(t, openapi3filter.ValidateRequest(t.Context(), asked), "%s %s", tt.method, tt.path)
		}
		require.NoError(t, openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
			RequestValidationInput: asked, Status: a.status, Header: a.header, Options: options,
			Body: io.NopCloser(strings.NewReader(a.body)),
		}), "%s %s was answered %d: %s", tt.method, tt.path, a.status, a.body)
	}
}

// The document names every reason that a line can have.
func TestDocumentNamesTheReasons(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData([]byte(document))
	require.NoError(t, err)
	var documented []string
	for _, reason := range doc.Components.Schemas["Line"].Value.Properties["reason"].Value.Enum {
		documented = append(documented, reason.(string))
	}
	require.ElementsMatch(t, append(rejectReasons(), reasonNotAcknowledged), documented)
}
