package producer

import (
	_ "embed" // openapi.yaml
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"kudos/httpserver/origin"
	"kudos/httpserver/problem"
	"kudos/schema"
)

// document describes the API; a test holds the two against each other.
//
//go:embed openapi.yaml
var document string

// served is all that the producer serves, by path and method.
func (p *Producer) served() map[string]map[string]http.HandlerFunc {
	return map[string]map[string]http.HandlerFunc{
		"/v1/posts/{post_id}/likes/{user_id}": {
			http.MethodPut:    p.known(p.react(schema.Like)),
			http.MethodDelete: p.known(p.react(schema.Unlike)),
		},
		"/v1/posts/{post_id}/dislikes/{user_id}": {
			http.MethodPut:    p.known(p.react(schema.Dislike)),
			http.MethodDelete: p.known(p.react(schema.Unlike)),
		},
		"/v1/posts/{post_id}/likes": {http.MethodPost: p.known(p.postLike)},
		"/v1/likes:batch":           {http.MethodPost: p.known(p.postBatch)},
		"/openapi.yaml":             {http.MethodGet: getDocument},
		"/":                         nil,
	}
}

func (p *Producer) routes() http.Handler {
	mux := http.NewServeMux()
	for path, methods := range p.served() {
		mux.Handle(path, p.counted(path, p.limited(methods)))
	}
	return origin.Access{
		Origins: p.options.Origins,
		Methods: []string{http.MethodPut, http.MethodDelete, http.MethodPost},
		Headers: []string{"Content-Type", "Authorization"},
		Exposed: []string{"Retry-After", "WWW-Authenticate"},
	}.Handler(mux)
}

func getDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = io.WriteString(w, document) // a client that is gone needs no answer
}

// limited bounds how many requests are in flight. A POST has a body, and takes its slot itself once that has
// arrived: one that never does would keep it from others.
func (p *Producer) limited(methods map[string]http.HandlerFunc) http.HandlerFunc {
	next, post := problem.ByMethod(methods), methods[http.MethodPost]
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && post != nil {
			post(w, r)
			return
		}
		if !p.takeSlot(w) {
			return
		}
		defer p.requests.Release(1)
		next.ServeHTTP(w, r)
	}
}

// takeSlot takes one of the slots for requests, which the caller releases, or refuses the request.
func (p *Producer) takeSlot(w http.ResponseWriter) bool {
	taken := p.requests.TryAcquire(1)
	if !taken {
		p.fail(w, tooManyRequests("as many requests are in hand as the producer takes"))
	}
	return taken
}

// counted counts a route's requests by method and code.
func (p *Producer) counted(route string, next http.Handler) http.Handler {
	if route == "/" {
		route = "other"
	}
	return promhttp.InstrumentHandlerCounter(p.metrics.requests.MustCurryWith(prometheus.Labels{"route": route}), next)
}
