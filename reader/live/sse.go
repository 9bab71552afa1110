package live

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"time"
)

// sseConn is a stream of Server-Sent Events, https://html.spec.whatwg.org/multipage/server-sent-events.html.
type sseConn struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// A client reconnects after a random time between these, so that not all reconnect at once when a reader restarts.
const retryMin, retryMax = time.Second, 3 * time.Second

func (h *Hub) openSSE(w http.ResponseWriter, r *http.Request) (conn, *refusal) {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // nginx would buffer events
	if r.Method == http.MethodHead {
		return nil, nil
	}
	c := &sseConn{w: w, control: http.NewResponseController(w), timeout: h.options.WriteTimeout}
	// The server's write deadline is for responses that end. (It lifts its read deadline itself.)
	if err := c.control.SetWriteDeadline(time.Time{}); err != nil {
		return nil, h.refusalOf(fmt.Errorf("removing the write deadline of a stream: %w", err))
	}
	if r.ProtoMajor == 1 {
		// The connection must end with the stream: close leaves a deadline on it.
		header.Set("Connection", "close")
	}
	retry := retryMin + rand.N(retryMax-retryMin)
	if err := c.writeText(fmt.Sprintf("retry: %d\n\n", retry.Milliseconds())); err != nil {
		return nil, nil // the client is gone already
	}
	return c, nil
}

// write runs f and flushes, within the timeout. Then it removes the deadline: on HTTP/2, a deadline that passes while
// nothing is written ends the stream.
func (c *sseConn) write(f func() error) error {
	started := time.Now()
	err := c.control.SetWriteDeadline(started.Add(c.timeout))
	if err == nil {
		err = f()
	}
	if err == nil {
		err = c.control.Flush()
	}
	if err == nil {
		err = c.control.SetWriteDeadline(time.Time{})
	}
	if err != nil && time.Since(started) >= c.timeout {
		return fmt.Errorf("%w: %w", errSlow, err)
	}
	return err
}

// send writes each message in two pieces, because all streams share the second one.
func (c *sseConn) send(news iter.Seq2[[]byte, *message]) (sent int, err error) {
	err = c.write(func() error {
		for id, m := range news {
			if _, err := fmt.Fprintf(c.w, "id: %s\n", id); err != nil {
				return err
			}
			if _, err := c.w.Write(m.sse); err != nil {
				return err
			}
			sent++
		}
		return nil
	})
	return sent, err
}

func (c *sseConn) heartbeat(context.Context) error { return c.writeText(":\n\n") }

func (c *sseConn) writeText(text string) error {
	return c.write(func() error {
		_, err := io.WriteString(c.w, text)
		return err
	})
}

// close bounds the time that the server takes to end the response.
func (c *sseConn) close(error) { _ = c.control.SetWriteDeadline(time.Now().Add(leaveTimeout)) }
