package httpserver

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"
)

// BodyReader reads whole request bodies, of at most maxBytes each, before their requests take a slot: a client that
// does not finish its body must not use up the limit on requests in flight. The memory of unfinished bodies is bounded:
// beyond the bound, BodyReader gives up the oldest one, of the client that holds more than half if there is one. So a
// client's flood evicts itself, and a body that arrives at network speed is never the oldest for long.
type BodyReader struct {
	maxBytes int64
	maxHeld  int64 // limit of held

	mu struct {
		sync.Mutex
		held     int64
		of       shares     // of held
		busiest  netip.Addr // the client that holds most
		arriving list.List  // of *arrival, oldest first
	}
}

// NewBodyReader returns a BodyReader whose unfinished bodies may hold as much memory as `whole` bodies of maxBytes.
func NewBodyReader(maxBytes int64, whole int) *BodyReader {
	b := &BodyReader{maxBytes: maxBytes, maxHeld: math.MaxInt64}
	if maxBytes < math.MaxInt64/int64(whole)-1 {
		b.maxHeld = int64(whole) * (maxBytes + 1) // one more byte is read, to detect longer bodies
	}
	b.mu.of = shares{}
	return b
}

// errGivenUp counts as a timeout: the body had its time until newer ones needed the memory.
var errGivenUp = fmt.Errorf("the body was dropped in favor of newer ones: %w", os.ErrDeadlineExceeded)

type arrival struct {
	conn   *http.ResponseController
	client netip.Addr
	held   int64
	at     *list.Element // nil: given up
}

// firstBytes is enough for most bodies of one event. The client's Content-Length reserves no memory.
const firstBytes = 512

// Read reads a request's body. problem.UnreadBody turns its errors into a response.
func (b *BodyReader) Read(w http.ResponseWriter, r *http.Request, client netip.Addr) ([]byte, error) {
	a := b.enter(w, client)
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

func (b *BodyReader) readAll(body io.Reader, a *arrival) ([]byte, error) {
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

func (b *BodyReader) enter(w http.ResponseWriter, client netip.Addr) *arrival {
	a := &arrival{conn: http.NewResponseController(w), client: client}
	b.mu.Lock()
	defer b.mu.Unlock()
	a.at = b.mu.arriving.PushBack(a)
	return a
}

// hold records how much memory a body holds now, and gives up the oldest bodies until the total is within the bound.
func (b *BodyReader) hold(a *arrival, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.at == nil {
		return
	}
	b.mu.held += bytes - a.held
	b.mu.of.add(a.client, bytes-a.held)
	if a.held = bytes; b.mu.of[a.client] > b.mu.of[b.mu.busiest] {
		b.mu.busiest = a.client
	}
	for b.mu.held > b.maxHeld {
		at := b.mu.arriving.Front()
		for b.mu.of[b.mu.busiest] > b.maxHeld/2 && at.Value.(*arrival).client != b.mu.busiest {
			at = at.Next()
		}
		oldest := at.Value.(*arrival)
		b.removeLocked(oldest)
		// This makes its Read return at once. It needs the lock: after leave, the connection may serve another request.
		_ = oldest.conn.SetReadDeadline(time.Unix(1, 0)) // if unsupported (no server), the body ends by itself
	}
}

// leave removes a body. It returns false if the body was given up.
func (b *BodyReader) leave(a *arrival) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.at == nil {
		return false
	}
	b.removeLocked(a)
	return true
}

func (b *BodyReader) removeLocked(a *arrival) {
	b.mu.arriving.Remove(a.at)
	b.mu.held -= a.held
	b.mu.of.add(a.client, -a.held)
	a.at = nil
}
