package producer

import (
	_ "embed" // openapi.yaml
	"io"
	"net/http"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"kudos/httpserver"
	"kudos/httpserver/problem"
	"kudos/schema"
)

// document describes the API; a test compares it with the routes.
//
//go:embed openapi.yaml
var document string

func (p *Producer) served() map[string]map[string]http.HandlerFunc {
	return map[string]map[string]http.HandlerFunc{
		"/v1/posts/{post_id}/likes/{user_id}": {
			http.MethodPut:    p.authenticated(p.react(schema.Like)),
			http.MethodDelete: p.authenticated(p.react(schema.Unlike)),
		},
		"/v1/posts/{post_id}/dislikes/{user_id}": {
			http.MethodPut:    p.authenticated(p.react(schema.Dislike)),
			http.MethodDelete: p.authenticated(p.react(schema.Unlike)),
		},
		"/v1/posts/{post_id}/likes": {http.MethodPost: p.authenticated(p.postLike)},
		"/v1/likes:batch":           {http.MethodPost: p.authenticated(p.postBatch)},
		"/v1/cloudevents":           {http.MethodPost: p.authenticated(p.postCloudEvent)},
		"/openapi.yaml":             {http.MethodGet: getDocument},
		"/":                         nil,
	}
}

func (p *Producer) routes() http.Handler {
	mux := http.NewServeMux()
	for path, methods := range p.served() {
		mux.Handle(path, p.route(path, methods))
	}
	return httpserver.CORS{
		Origins: p.options.Origins,
		Methods: []string{http.MethodPut, http.MethodDelete, http.MethodPost},
		Headers: []string{"Content-Type", "Authorization"},
		Exposed: []string{"Retry-After", "WWW-Authenticate"},
	}.Handler(mux)
}

// route counts the requests for a path, and bounds how many are in flight. A POST takes its slot itself once its body
// has arrived: a body that never arrives must not hold a slot.
func (p *Producer) route(path string, methods map[string]http.HandlerFunc) http.Handler {
	byMethod, post := problem.ByMethod(methods), methods[http.MethodPost]
	limited := p.failing(func(w http.ResponseWriter, r *http.Request) *problem.Problem {
		if r.Method == http.MethodPost && post != nil {
			post(w, r)
			return nil
		}
		address := p.proxies.ClientOf(r)
		if prob := p.takeSlot(p.requests, address); prob != nil {
			return prob
		}
		defer p.requests.Return(address, 1)
		byMethod(w, r)
		return nil
	})
	if path == "/" {
		path = "other"
	}
	counter := p.metrics.requests.MustCurryWith(prometheus.Labels{"route": path})
	return promhttp.InstrumentHandlerCounter(counter, limited)
}

// takeSlot takes a slot for a request, which the caller returns, or rejects the request.
func (p *Producer) takeSlot(of *httpserver.Slots, address netip.Addr) *problem.Problem {
	if err := of.Take(address, 1); err != nil {
		return unwritten(problem.TooManyRequests("%s", err))
	}
	return nil
}

func getDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = io.WriteString(w, document) // the client may be gone
}
