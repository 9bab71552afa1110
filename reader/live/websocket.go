package live

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"kudos/httpserver/problem"
	"kudos/schema"
)

// wsConn is a stream over a WebSocket: text messages {"event", "id", "data"}.
type wsConn struct {
	ws      *websocket.Conn
	raw     net.Conn      // the connection below ws
	read    chan struct{} // closed when the reading goroutine has ended
	timeout time.Duration
	buf     []byte
}

const (
	keepBytes    = 1 << 10 // the largest buffer that is kept for the next message
	maxReadBytes = 4 << 10 // of a message from the client; all of them are ignored
)

func (h *Hub) openWebSocket(w http.ResponseWriter, r *http.Request, s *stream) (conn, *refusal) {
	answer := &upgrade{ResponseWriter: w}
	ws, err := websocket.Accept(answer, r, acceptOptions(h.options.Origins))
	if err != nil {
		return nil, answer.refusal()
	}
	ws.SetReadLimit(maxReadBytes)
	c := &wsConn{ws: ws, raw: answer.raw, read: make(chan struct{}), timeout: h.options.WriteTimeout}
	go func() {
		defer close(c.read)
		s.end(fmt.Errorf("%w: %w", errGone, c.ignore()))
	}()
	return c, nil
}

// ignore reads until close, receiving pongs and the close frame. (The library's CloseRead waits 15 s if data arrives.)
func (c *wsConn) ignore() error {
	for {
		_, r, err := c.ws.Reader(context.Background())
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		if err != nil {
			return err
		}
	}
}

// acceptOptions makes the library check the origin; the reader's own is always allowed.
func acceptOptions(origins []string) *websocket.AcceptOptions {
	o := &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled}
	o.InsecureSkipVerify = slices.Contains(origins, "*")
	for _, origin := range origins {
		// The library takes them as patterns, and [::1] would be one.
		o.OriginPatterns = append(o.OriginPatterns, escapePattern.Replace(origin))
	}
	return o
}

var escapePattern = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// upgrade captures the connection that the library hijacks, or its plain-text response to a handshake that it rejects.
type upgrade struct {
	http.ResponseWriter
	raw    net.Conn
	status int
	detail []byte
}

func (u *upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	raw, buffers, err := http.NewResponseController(u.ResponseWriter).Hijack()
	u.raw = raw
	return raw, buffers, err
}

func (u *upgrade) WriteHeader(status int) {
	if u.status = status; status == http.StatusSwitchingProtocols {
		u.ResponseWriter.WriteHeader(status)
	}
}

func (u *upgrade) Write(p []byte) (int, error) {
	u.detail = append(u.detail, p...)
	return len(p), nil
}

func (u *upgrade) refusal() *refusal {
	for _, name := range []string{"Connection", "Upgrade", "Sec-WebSocket-Accept", "X-Content-Type-Options"} {
		u.Header().Del(name)
	}
	detail := strings.TrimSpace(string(u.detail))
	if u.status == http.StatusForbidden {
		return &refusal{Problem: problem.New(http.StatusForbidden, slugOrigin, "Origin not allowed",
			"%s (reader.origins lists the allowed ones)", detail)}
	}
	wrong := problem.FieldError{Field: "Upgrade", Reason: string(schema.Undecodable), Detail: detail}
	return &refusal{Problem: problem.InvalidRequest(wrong)}
}

func (c *wsConn) send(news iter.Seq2[[]byte, *message]) (sent int, err error) {
	// Not the stream's context: its end must not cut a message in half.
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	for id, m := range news {
		// Neither event nor id needs escaping.
		c.buf = fmt.Appendf(c.buf[:0], `{"event":"%s","id":"%s","data":%s}`, m.event, id, m.data)
		if err := c.ws.Write(ctx, websocket.MessageText, c.buf); err != nil {
			return sent, slowIfLate(err)
		}
		sent++
	}
	if cap(c.buf) > keepBytes {
		c.buf = nil
	}
	return sent, nil
}

// heartbeat sends a ping and waits for the pong. Values changed meanwhile are not lost: the newest is sent afterward.
func (c *wsConn) heartbeat(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := c.ws.Ping(bounded)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return slowIfLate(err)
}

func slowIfLate(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", errSlow, err)
	}
	return err
}

// closeStatus is the status that a client gets for why its stream ends. errSlow reaches it only after a missing pong:
// after a write that was too late the connection is already closed.
var closeStatus = map[error]websocket.StatusCode{
	errShutdown:   websocket.StatusGoingAway,
	errRecreated:  websocket.StatusServiceRestart,
	errNotCovered: websocket.StatusTryAgainLater,
	errSlow:       websocket.StatusPolicyViolation,
}

// close tells the client why, and waits for its close frame and for the reading goroutine. After leaveTimeout it forces
// the connection closed: the library waits longer, and without end for a message that is half sent.
func (c *wsConn) close(cause error) {
	force := time.AfterFunc(leaveTimeout, func() { _ = c.raw.Close() })
	defer force.Stop()
	end := c.ws.CloseNow
	for err, status := range closeStatus {
		if errors.Is(cause, err) {
			end = func() error { return c.ws.Close(status, err.Error()) }
		}
	}
	_ = end()
	<-c.read
}
