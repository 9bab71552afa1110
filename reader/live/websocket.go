package live

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"kudos/schema"
	"kudos/schema/problem"
)

// wsConn is a stream over a WebSocket: text messages {"event", "id", "data"}.
type wsConn struct {
	conn    *websocket.Conn
	cancel  context.CancelFunc // ends the reading, and with it the connection
	timeout time.Duration
	buf     []byte
}

// keepBytes is the largest message whose memory is kept for the next one.
const keepBytes = 1 << 10

func (h *Hub) openWebSocket(w http.ResponseWriter, r *http.Request, s *stream) (conn, *refusal) {
	answer := &refusedUpgrade{ResponseWriter: w}
	ws, err := websocket.Accept(answer, r, acceptOptions(h.options.Origins))
	if err != nil {
		return nil, answer.refusal()
	}
	c := &wsConn{conn: ws, timeout: h.options.WriteTimeout}
	reading, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	c.cancel = cancel
	// Nothing is expected of the client but pongs and a close: data ends the connection
	// before it is read.
	gone := ws.CloseRead(reading)
	context.AfterFunc(gone, func() { s.end(errGone) })
	return c, nil
}

// acceptOptions has the library check the origin; that of the reader itself is allowed.
func acceptOptions(origins []string) *websocket.AcceptOptions {
	o := &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled}
	for _, origin := range origins {
		if origin == "*" {
			o.InsecureSkipVerify = true
		}
		// To the library they are patterns; [::1] would be one.
		o.OriginPatterns = append(o.OriginPatterns, escapePattern.Replace(origin))
	}
	return o
}

var escapePattern = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// refusedUpgrade keeps the library's answer to a handshake that it refuses, which is
// plain text.
type refusedUpgrade struct {
	http.ResponseWriter
	status int
	detail []byte
}

// Unwrap lets the library find the connection.
func (u *refusedUpgrade) Unwrap() http.ResponseWriter { return u.ResponseWriter }

func (u *refusedUpgrade) WriteHeader(status int) {
	if u.status = status; status == http.StatusSwitchingProtocols {
		u.ResponseWriter.WriteHeader(status)
	}
}

func (u *refusedUpgrade) Write(p []byte) (int, error) {
	u.detail = append(u.detail, p...)
	return len(p), nil
}

func (u *refusedUpgrade) refusal() *refusal {
	for _, name := range []string{"Connection", "Upgrade", "Sec-WebSocket-Accept", "X-Content-Type-Options"} {
		u.Header().Del(name)
	}
	detail := strings.TrimSpace(string(u.detail))
	if u.status == http.StatusForbidden {
		return &refusal{Problem: problem.New(http.StatusForbidden, slugOrigin, "The origin is not allowed",
			"%s (reader.origins lists those that are)", detail), slug: slugOrigin}
	}
	return &refusal{Problem: invalid("Upgrade", string(schema.Undecodable), "%s", detail), slug: slugInvalid}
}

func (c *wsConn) send(news iter.Seq2[[]byte, *message]) (sent int, err error) {
	// Not the stream's context: its end must not tear a message.
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	for id, m := range news {
		c.buf = appendJSON(c.buf[:0], id, m)
		if err := c.conn.Write(ctx, websocket.MessageText, c.buf); err != nil {
			return sent, slowIfLate(err)
		}
		sent++
	}
	if cap(c.buf) > keepBytes {
		c.buf = nil
	}
	return sent, nil
}

// appendJSON writes the message; neither event nor id has anything to escape.
func appendJSON(b, id []byte, m *message) []byte {
	b = append(append(b, `{"event":"`...), m.event...)
	b = append(append(b, `","id":"`...), id...)
	b = append(append(b, `","data":`...), m.data...)
	return append(b, '}')
}

// heartbeat waits for the pong. Values that change meanwhile are not lost, and there
// will be one message of them.
func (c *wsConn) heartbeat(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := c.conn.Ping(bounded)
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

// close says why, and waits for the client's close.
func (c *wsConn) close(cause error) {
	defer c.cancel()
	force := time.AfterFunc(leaveTimeout, c.cancel)
	defer force.Stop()
	switch {
	case errors.Is(cause, errShutdown):
		_ = c.conn.Close(websocket.StatusGoingAway, errShutdown.Error())
	case errors.Is(cause, errAnew):
		_ = c.conn.Close(websocket.StatusServiceRestart, errAnew.Error())
	case errors.Is(cause, errNotCovered):
		_ = c.conn.Close(websocket.StatusTryAgainLater, errNotCovered.Error())
	case errors.Is(cause, errSlow):
		// After a write that was too late the connection is closed already; after a pong
		// that did not come it is not.
		_ = c.conn.Close(websocket.StatusPolicyViolation, errSlow.Error())
	default:
		_ = c.conn.CloseNow()
	}
}
