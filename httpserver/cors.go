package httpserver

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rs/cors"
)

// preflightAge is how long a browser need not ask again whether it may ask.
const preflightAge = 10 * time.Minute

// CheckOrigins says what in a list is not an origin, as a browser sends it; "*" stands for every one.
func CheckOrigins(origins []string) error {
	for _, o := range origins {
		if o != "*" && !validOrigin(o) {
			return fmt.Errorf(`%q is not an origin, as https://www.example.com, nor "*"`, o)
		}
	}
	return nil
}

// validOrigin rejects what no browser sends, which would never match, and patterns.
func validOrigin(s string) bool {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return false
	}
	return s == u.Scheme+"://"+strings.ToLower(u.Host) && !strings.Contains(s, "*")
}

// CORS is what a web page of another host may do from a browser (https://fetch.spec.whatwg.org/#http-cors-protocol).
type CORS struct {
	Origins []string
	// Methods and Headers that a request may have, and the headers of an answer that a page may read.
	Methods, Headers, Exposed []string
}

// Handler lets pages of the listed origins send requests to next, and answers the preflights of browsers. Without
// origins it is next itself: browsers then let no other host's page read what it answers.
func (c CORS) Handler(next http.Handler) http.Handler {
	if len(c.Origins) == 0 { // to the library: every origin
		return next
	}
	return cors.New(cors.Options{
		AllowedOrigins: c.Origins, AllowedMethods: c.Methods, AllowedHeaders: c.Headers, ExposedHeaders: c.Exposed,
		MaxAge: int(preflightAge.Seconds()),
	}).Handler(next)
}
