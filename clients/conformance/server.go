package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"kudos/schema"
)

const (
	chunkPause     = 20 * time.Millisecond // between the chunks of a stream, so that the client reads them one by one
	clockTolerance = time.Minute           // between this clock and the testee's
	earlyTolerance = 20 * time.Millisecond // by which a retry may seem early
)

// server plays a producer and a reader for one step.
type server struct {
	net.Listener
	http   http.Server
	unread int        // connections that Accept still closes
	script []Exchange // the rest
	mu     sync.Mutex
	got    []string // the requests, in the form of Exchange.Request
	last   time.Time
	now    string // time_ms of the first request, if that is the current time
}

func serve(script []Exchange) (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the testee's requests: %w", err)
	}
	s := &server{Listener: listener, script: script}
	for len(s.script) > 0 && s.script[0].Close == "unread" {
		s.unread, s.script = s.unread+1, s.script[1:]
	}
	s.http = http.Server{Handler: s, ReadTimeout: CaseTimeout}
	go s.http.Serve(s) // until Close
	return s, nil
}

// Accept closes the first connections, if the step says so.
func (s *server) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	for ; err == nil && s.unread > 0; s.unread-- {
		_ = conn.Close()
		conn, err = s.Listener.Accept()
	}
	return conn, err
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxAnswerBytes))
	x, last := s.next(r)
	body, contentType := []byte(x.Body), "application/json"
	switch {
	case x.Stream != nil:
		w.Header().Set("Content-Type", "text/event-stream")
		for _, chunk := range x.Stream {
			_, _ = io.WriteString(w, chunk)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(chunkPause)
		}
		if last {
			<-r.Context().Done()
		}
	case x.Problem != "":
		contentType = "application/problem+json"
		body, _ = json.Marshal(map[string]any{"type": "urn:kudos:problem:" + x.Problem, "title": x.Problem,
			"status": x.Status, "detail": "the reply of this case"})
	}
	if x.Close != "" {
		panic(http.ErrAbortHandler)
	}
	if x.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(x.RetryAfter))
	}
	if x.Stream == nil {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(x.Status)
		_, _ = w.Write(body)
	}
}

// next notes a request and returns what to do with it, and whether it is the last one of the script.
func (s *server) next(r *http.Request) (x Exchange, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, got := len(s.got), s.describe(r)
	if n > 0 && n < len(s.script) {
		after := time.Since(s.last)
		if due := time.Duration(s.script[n-1].RetryAfter) * time.Second; after < due-earlyTolerance {
			got += fmt.Sprintf(" after %s, before Retry-After", after.Round(time.Millisecond))
		}
	}
	if n <= len(s.script) { // of those that no case expects, the first one is enough
		s.got, s.last = append(s.got, got), time.Now()
	}
	if n >= len(s.script) {
		return Exchange{Status: http.StatusForbidden, Problem: "forbidden"}, false
	}
	return s.script[n], n == len(s.script)-1
}

// describe omits what says nothing: empty values and the unknown region.
func (s *server) describe(r *http.Request) string {
	path, query := r.URL.Path, r.URL.Query()
	if r.Method == http.MethodDelete { // withdraws the like or the dislike, whichever the user has
		path = strings.Replace(path, "/dislikes/", "/likes/", 1)
	}
	if region, _ := schema.ParseRegion(query.Get("region")); region == schema.UnknownRegion {
		query.Del("region")
	} else {
		query.Set("region", region.String())
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		query.Set("last_event_id", id)
	}
	if timeMs := query.Get("time_ms"); isNow(timeMs) && (s.now == "" || s.now == timeMs) {
		s.now = timeMs
		query.Set("time_ms", "<now>")
	}
	text := r.Method + " " + path
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if value := strings.Join(query[name], ","); value != "" {
			text += " " + name + "=" + value
		}
	}
	return text
}

// requests closes the server and returns the expected requests, and those that arrived.
func (s *server) requests() (want, got []string) {
	_ = s.http.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.script {
		want = append(want, x.Request)
	}
	return want, slices.Clone(s.got)
}

func isNow(timeMs string) bool {
	ms, err := strconv.ParseInt(timeMs, 10, 64)
	return err == nil && time.Since(time.UnixMilli(ms)).Abs() <= clockTolerance
}
