// Package origin is about the web pages of other hosts that may ask from a browser:
// lists of origins come in from the configuration, and out go the CORS headers that tell
// the browser (https://fetch.spec.whatwg.org/#http-cors-protocol).
package origin

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rs/cors"
)

// all in a list stands for every origin.
const all = "*"

// preflightAge is how long a browser need not ask again whether it may ask.
const preflightAge = 10 * time.Minute

// Check says what in a list is not an origin, as a browser sends it.
func Check(origins []string) error {
	for _, o := range origins {
		if o != all && !valid(o) {
			return fmt.Errorf(`%q is not an origin, as https://www.example.com, nor "*"`, o)
		}
	}
	return nil
}

// valid refuses what no browser sends, which would never match, and patterns: a list
// says who may ask, in full.
func valid(s string) bool {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return false
	}
	return s == u.Scheme+"://"+strings.ToLower(u.Host) && !strings.Contains(s, "*")
}

// Access is what a page of a listed origin may do.
type Access struct {
	Origins []string
	// Methods and Headers that a request may have, and the headers of an answer that a
	// page may read.
	Methods, Headers, Exposed []string
}

// Handler lets the listed origins ask next, and answers the preflights of browsers.
// Without a list next is left as it is: browsers then let no other origin's page read
// what it answers.
func (a Access) Handler(next http.Handler) http.Handler {
	if len(a.Origins) == 0 { // to the library: every origin
		return next
	}
	return cors.New(cors.Options{
		AllowedOrigins: a.Origins, AllowedMethods: a.Methods, AllowedHeaders: a.Headers, ExposedHeaders: a.Exposed,
		MaxAge: int(preflightAge.Seconds()),
	}).Handler(next)
}
