package producer

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"kudos/schema"
)

// routes is all that the producer serves.
func (p *Producer) routes() http.Handler {
	mux := http.NewServeMux()
	for path, methods := range map[string]map[string]http.HandlerFunc{
		"/v1/posts/{post_id}/likes/{user_id}": {
			http.MethodPut:    p.react(schema.Like),
			http.MethodDelete: p.react(schema.Unlike),
		},
		"/v1/posts/{post_id}/dislikes/{user_id}": {
			http.MethodPut:    p.react(schema.Dislike),
			http.MethodDelete: p.react(schema.Unlike),
		},
		"/v1/posts/{post_id}/likes": {http.MethodPost: p.postLike},
		"/v1/likes:batch":           {http.MethodPost: p.postBatch},
		"/":                         nil,
	} {
		mux.Handle(path, p.counted(path, p.limited(p.byMethod(methods))))
	}
	return mux
}

// byMethod calls the method's handler. ServeMux could, but would answer what it does
// not know in plain text.
func (p *Producer) byMethod(methods map[string]http.HandlerFunc) http.HandlerFunc {
	allow := strings.Join(slices.Sorted(maps.Keys(methods)), ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		if handle, ok := methods[r.Method]; ok {
			handle(w, r)
			return
		}
		if len(methods) == 0 {
			p.fail(w, newProblem(http.StatusNotFound, "not-found", "There is nothing here", "no route has the path %.200q", r.URL.Path))
			return
		}
		w.Header().Set("Allow", allow)
		p.fail(w, newProblem(http.StatusMethodNotAllowed, "method-not-allowed", "The method is not allowed here",
			"%.20s is not allowed here; %s is", r.Method, allow))
	}
}

// limited bounds how many requests are in hand.
func (p *Producer) limited(next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !p.requests.TryAcquire(1) {
			p.fail(w, tooManyRequests("as many requests are in hand as the producer takes"))
			return
		}
		defer p.requests.Release(1)
		next.ServeHTTP(w, r)
	}
}

// counted counts a route's requests by method and code.
func (p *Producer) counted(route string, next http.Handler) http.Handler {
	if route == "/" {
		route = "other"
	}
	return promhttp.InstrumentHandlerCounter(p.metrics.requests.MustCurryWith(prometheus.Labels{"route": route}), next)
}
