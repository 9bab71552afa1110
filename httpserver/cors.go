package httpserver

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/rs/cors"
)

// CheckOrigins returns an error for the first item that is not an origin as browsers send it. "*" allows all origins.
func CheckOrigins(origins []string) error {
	for _, o := range origins {
		if o != "*" && !validOrigin(o) {
			return fmt.Errorf(`%q is not an origin, such as https://www.example.com, or "*"`, o)
		}
	}
	return nil
}

// validOrigin rejects patterns, and what no browser sends and would therefore never match.
func validOrigin(s string) bool {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return false
	}
	return s == u.Scheme+"://"+strings.ToLower(u.Host) && !strings.Contains(s, "*")
}

// CORS says what web pages from other hosts may do in a browser (https://fetch.spec.whatwg.org/#http-cors-protocol).
type CORS struct {
	Origins []string
	// Methods and Headers are allowed in requests. Exposed are the response headers that a page may read.
	Methods, Headers, Exposed []string
}

// Handler lets pages of the listed origins send requests to next, and answers preflight requests. Without origins it
// returns next: browsers then let no page from another host read the responses.
func (c CORS) Handler(next http.Handler) http.Handler {
	if len(c.Origins) == 0 { // which the library takes as every origin
		return next
	}
	return cors.New(cors.Options{
		AllowedOrigins: c.Origins, AllowedMethods: c.Methods, AllowedHeaders: c.Headers, ExposedHeaders: c.Exposed,
		MaxAge: 600, // seconds for which a browser may cache the response to a preflight request
	}).Handler(next)
}
