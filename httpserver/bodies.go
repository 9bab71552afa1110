package httpserver

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"sync"
	"time"
)

// BodyReader reads whole request bodies, of at most maxBytes each, before anything else is done for their requests: a
// client that does not finish its body takes none of the slots that bound the requests in flight.
//
// What unfinished bodies hold is bounded, and no request is refused for it: beyond the bound, the body that has been
// arriving longest is given up. So a flood of unfinished bodies pushes out its own, and a body that comes at the
// network's pace is never the oldest for long.
type BodyReader struct {
	maxBytes int64
	maxHeld  int64 // bytes of all bodies that are arriving

	mu struct {
		sync.Mutex
		held     int64
		arriving list.List // of *arrival, the oldest first
	}
}

// NewBodyReader makes a BodyReader whose unfinished bodies hold as much memory as whole bodies of the largest size do.
func NewBodyReader(maxBytes int64, whole int) *BodyReader {
	b := &BodyReader{maxBytes: maxBytes, maxHeld: math.MaxInt64}
	if maxBytes < math.MaxInt64/int64(whole)-1 {
		b.maxHeld = int64(whole) * (maxBytes + 1) // one byte more is read than a body may have
	}
	return b
}

// errGivenUp is a timeout: the body had its time until others needed the memory.
var errGivenUp = fmt.Errorf("the body was given up for newer ones: %w", os.ErrDeadlineExceeded)

// arrival is a body that is being read.
type arrival struct {
	conn *http.ResponseController
	held int64
	at   *list.Element // nil: it was given up
}

// firstBytes is enough for most bodies of one event. A client's word on how much will come takes no memory.
const firstBytes = 512

// Read reads a request's body. Its errors are those that problem.UnreadBody knows.
func (b *BodyReader) Read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	a := b.enter(w)
	body, err := b.readAll(http.MaxBytesReader(w, r.Body, b.maxBytes), a)
	if !b.leave(a) {
		// Even if its end has just come: its connection is past its read deadline, and of no more use.
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
		if len(buf) == cap(buf) { // never at maxBytes+1: body fails before
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

func (b *BodyReader) enter(w http.ResponseWriter) *arrival {
	a := &arrival{conn: http.NewResponseController(w)}
	b.mu.Lock()
	defer b.mu.Unlock()
	a.at = b.mu.arriving.PushBack(a)
	return a
}

// hold counts what a body holds now, and gives up the oldest ones until all that is held is within the bound.
func (b *BodyReader) hold(a *arrival, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.at == nil {
		return
	}
	b.mu.held += bytes - a.held
	a.held = bytes
	for b.mu.held > b.maxHeld {
		oldest := b.mu.arriving.Front().Value.(*arrival)
		b.removeLocked(oldest)
		// Its Read returns at once. Under the lock: once it has left, the connection may be another request's.
		_ = oldest.conn.SetReadDeadline(time.Unix(1, 0)) // without deadlines (no server) it goes when it ends
	}
}

// leave says whether the body was not given up.
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
	a.at = nil
}
