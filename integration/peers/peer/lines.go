package peer

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// committedEvery is the least time between two "committed" lines while there is more to commit.
const committedEvery = 50 * time.Millisecond

// Lines prints what the harness wants to know, one JSON object a line. Its methods may be called from any goroutine.
type Lines struct {
	mu        sync.Mutex
	out       io.Writer
	polled    bool
	read      int64 // events, since the beginning of the topic
	committed time.Time
	err       error // the first one: a peer whose lines are lost must not continue
}

// NewLines prints to out.
func NewLines(out io.Writer) *Lines { return &Lines{out: out} }

// FirstPoll says that Kafka is about to be asked for records. Only the first call prints.
func (l *Lines) FirstPoll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.polled {
		l.polled = true
		// Committed returns its error.
		_ = l.printLocked(map[string]any{"event": "first_poll", "time_unix_ns": time.Now().UnixNano()})
	}
}

// Read says how many more events were read.
func (l *Lines) Read(events int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read += events
}

// Committed says, after a commit in MySQL, how many events of the topic are in all that is committed. It prints at once
// where that is all that was read, otherwise only every now and then.
func (l *Lines) Committed(events int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if events < l.read && now.Sub(l.committed) < committedEvery {
		return l.err
	}
	l.committed = now
	return l.printLocked(map[string]any{"event": "committed", "events": events, "time_unix_ns": now.UnixNano()})
}

// State is the last line: the bytes that the peer keeps to know who likes what, and how many pairs that are.
func (l *Lines) State(bytes, pairs int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.printLocked(map[string]any{"event": "state", "bytes": bytes, "pairs": pairs})
}

func (l *Lines) printLocked(line map[string]any) error {
	if l.err != nil {
		return l.err
	}
	text, err := json.Marshal(line)
	if err == nil {
		_, err = l.out.Write(append(text, '\n'))
	}
	if err != nil {
		l.err = fmt.Errorf("print a line: %w", err)
	}
	return l.err
}
