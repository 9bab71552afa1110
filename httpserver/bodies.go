package httpserver

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"os"
	"time"
)

// BodyReader reads whole request bodies, of at most maxBytes each, before their requests take a slot: a client that
// does not finish its body must not use up the limit on requests in flight. The memory of unfinished bodies is bounded;
// a body that arrives at network speed is never the oldest for long.
type BodyReader struct {
	maxBytes int64
	bounded
}

// NewBodyReader returns a BodyReader whose unfinished bodies may hold as much memory as `whole` bodies of maxBytes.
func NewBodyReader(maxBytes int64, whole int) *BodyReader {
	limit := int64(math.MaxInt64)
	if maxBytes < math.MaxInt64/int64(whole)-1 {
		limit = int64(whole) * (maxBytes + 1) // one more byte is read, to detect longer bodies
	}
	return &BodyReader{maxBytes, bounded{limit: limit}}
}

// errGivenUp counts as a timeout: the body had its time until newer ones needed the memory.
var errGivenUp = fmt.Errorf("the body was dropped in favor of newer ones: %w", os.ErrDeadlineExceeded)

// firstBytes is enough for most bodies of one event. The client's Content-Length reserves no memory.
const firstBytes = 512

// Read reads a request's body. problem.UnreadBody turns its errors into a response.
func (b *BodyReader) Read(w http.ResponseWriter, r *http.Request, client netip.Addr) ([]byte, error) {
	a := b.enter(client, func() {
		// This makes Read return at once. After leave, the connection may serve another request.
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // unsupported: the body ends by itself
	})
	body, err := b.readAll(http.MaxBytesReader(w, r.Body, b.maxBytes), a)
	if !b.leave(a) {
		// Even if the body has just ended: its connection is past the read deadline and cannot be reused.
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		return nil, errGivenUp
	}
	return body, err
}

func (b *BodyReader) readAll(body io.Reader, a *holding) ([]byte, error) {
	var buf []byte
	for {
		if len(buf) == cap(buf) { // never at maxBytes+1: MaxBytesReader fails first
			size := max(firstBytes, 2*int64(cap(buf)))
			if size > b.maxBytes {
				size = b.maxBytes + 1
			}
			b.hold(a, size)
			buf = append(make([]byte, 0, size), buf...)
		}
		n, err := body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			return nil, err
		}
	}
}
