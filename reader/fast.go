package reader

import (
	"bytes"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"kudos/reader/query"
	"kudos/reader/wire"
)

// fastConn answers GET /v1/posts/{post_id}/likes and GET /v1/likes?post_ids= without net/http, which takes more CPU
// time than the answer. It recognizes only what services send: no body, and headers that do not matter. net/http gets
// the connection for good with the first other request, or part of one, and has seen nothing of it before: so the two
// cannot disagree about where a request begins.
type fastConn struct {
	*net.TCPConn
	of    fastListener
	bound time.Time // when the deadlines were set
	in    []byte    // memory for requests; nil: net/http has the connection
	rest  []byte    // of in: what net/http has not read yet
	out   []byte
}

const postRoute, pageRoute = "/v1/posts/{post_id}/likes", "/v1/likes"

type fastListener struct {
	net.Listener
	api    *api
	server *http.Server
	conns  *sync.Map // of *fastConn: those that net/http has not got
}

func (l fastListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		f := &fastConn{TCPConn: tcp, of: l, in: make([]byte, 2<<10)}
		l.conns.Store(f, nil)
		return f, nil
	}
	return c, err
}

// Close ends the connections once they have answered what has arrived: net/http takes them for new ones, and would wait
// for their first requests. It closes the listener when shutdown begins.
func (l fastListener) Close() error {
	l.conns.Range(func(c, _ any) bool {
		_ = c.(*fastConn).CloseRead()
		return true
	})
	return l.Listener.Close()
}

func (c *fastConn) Close() error {
	c.of.conns.Delete(c)
	return c.TCPConn.Close()
}

var fastHeaders = [][]byte{[]byte("Host"), []byte("User-Agent"), []byte("Accept"), []byte("Accept-Encoding"),
	[]byte("Traceparent"), []byte("Tracestate"), []byte("X-Forwarded-For"), []byte("X-Request-Id")}

// parseFast parses the request at the beginning of in, and returns what follows it, and the ids of posts, separated by
// commas if it is for a page. It does not recognize all.
func parseFast(in []byte) (ids []byte, page bool, rest []byte, ok bool) {
	line, in, _ := bytes.Cut(in, []byte("\r\n"))
	target, ok := bytes.CutSuffix(line, []byte(" HTTP/1.1"))
	if ids, page = bytes.CutPrefix(target, []byte("GET /v1/likes?post_ids=")); !page {
		of, ends := bytes.CutSuffix(target, []byte("/likes"))
		id, begins := bytes.CutPrefix(of, []byte("GET /v1/posts/"))
		ids, ok = id, ok && begins && ends
	}
	hosts := 0
	for ok {
		if line, in, ok = bytes.Cut(in, []byte("\r\n")); len(line) == 0 {
			return ids, page, in, ok && hosts == 1
		}
		name, value, isHeader := bytes.Cut(line, []byte(": "))
		known := func(header []byte) bool { return bytes.EqualFold(name, header) }
		ok = ok && isHeader && httpguts.ValidHeaderFieldValue(string(value)) &&
			(slices.ContainsFunc(fastHeaders, known) || string(line) == "Connection: keep-alive")
		if known(fastHeaders[0]) {
			hosts++
			ok = ok && httpguts.ValidHostHeader(string(value))
		}
	}
	return nil, false, nil, false
}

// Read answers what it recognizes, and returns the rest to net/http.
func (c *fastConn) Read(p []byte) (int, error) {
	for c.in != nil {
		n, err := c.TCPConn.Read(c.in)
		if err != nil {
			return 0, err
		}
		for c.rest = c.in[:n]; len(c.rest) > 0 && c.in != nil; {
			began := time.Now()
			if ids, page, next, ok := parseFast(c.rest); ok && c.answer(string(ids), page, began) {
				c.rest = next
				continue
			}
			c.in = nil
			c.of.conns.Delete(c)
			_ = c.SetReadDeadline(began.Add(c.of.server.ReadTimeout)) // as if the connection were new
		}
	}
	if len(c.rest) == 0 {
		c.rest = nil
		return c.TCPConn.Read(p)
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// answer writes the response as net/http would. It returns false if that is not 200, or may be compressed. Its slot is
// not counted for the client: nothing that a client does can hold it.
func (c *fastConn) answer(ids string, page bool, began time.Time) bool {
	q := &request{Input: &query.Input{}}
	defer c.of.api.release(q)
	if c.of.api.work(q) != nil {
		return false
	}
	route := postRoute
	if page {
		route = pageRoute
	}
	q.posts = q.IDs(q.posts[:0], ids, wire.MaxPosts, func(id string) string { return id })
	if len(q.Wrong()) > 0 || !page && len(q.posts) > 1 {
		return false
	}
	reply, err := c.of.api.likesOf(q, page)
	if err != nil || len(reply.body) >= minCompressed {
		return false
	}
	if began.Sub(c.bound) > time.Second { // each costs as much as reading the counts
		_ = c.SetReadDeadline(began.Add(c.of.server.IdleTimeout))
		_ = c.SetWriteDeadline(began.Add(c.of.server.WriteTimeout))
		c.of.server.ConnState(c, http.StateIdle) // it is not the one that waits longest
		c.bound = began
	}
	b := append(append(c.out[:0], "HTTP/1.1 200 OK\r\nCache-Control: "...), reply.caching[0]...)
	b = append(append(b, "\r\nContent-Type: application/json\r\nEtag: "...), reply.etag...)
	b = append(append(b, "\r\nKudos-As-Of: "...), reply.asOf...)
	b = append(b, "\r\nX-Content-Type-Options: nosniff"...)
	b = began.UTC().AppendFormat(append(b, "\r\nDate: "...), http.TimeFormat)
	b = strconv.AppendInt(append(b, "\r\nContent-Length: "...), int64(len(reply.body)), 10)
	c.out = append(append(b, "\r\n\r\n"...), reply.body...)
	c.of.api.release(q)
	if _, err := c.Write(c.out); err != nil {
		_ = c.TCPConn.Close() // nothing may follow a part of a response; the next Read fails
	}
	c.of.api.metrics.requests.WithLabelValues(route, "get", "200").Inc()
	c.of.api.metrics.seconds.WithLabelValues(route).Observe(time.Since(began).Seconds())
	return true
}
