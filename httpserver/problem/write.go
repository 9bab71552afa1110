package problem

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Write answers with a problem.
func Write(w http.ResponseWriter, p *Problem) { WriteBody(w, p.Status, p) }

// WriteBody answers with a body that has a problem's members and more.
func WriteBody(w http.ResponseWriter, status int, body any) {
	writeJSON(w, status, "application/problem+json", body)
}

// Answer writes a success that is for this request only.
func Answer(w http.ResponseWriter, status int, body any) {
	writeJSON(w, status, "application/json", body)
}

// writeJSON writes an answer. A client that is gone by now gets none: the error says
// nothing that its absence does not.
func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// ByMethod calls the method's handler, that of GET also for HEAD; no methods: there is
// nothing here. ServeMux could, but would answer what it does not know in plain text.
func ByMethod(methods map[string]http.HandlerFunc) http.HandlerFunc {
	all := maps.Clone(methods)
	if get, ok := all[http.MethodGet]; ok {
		all[http.MethodHead] = get
	}
	allow := strings.Join(slices.Sorted(maps.Keys(all)), ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		if handle, ok := all[r.Method]; ok {
			handle(w, r)
			return
		}
		if len(all) == 0 {
			Write(w, NotFound(r.URL.Path))
			return
		}
		w.Header().Set("Allow", allow)
		Write(w, MethodNotAllowed(r.Method, allow))
	}
}
