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
	mu struct {
		sync.Mutex
		out       io.Writer
		polled    bool
		read      int64 // events, since the beginning of the topic
		committed time.Time
		err       error // the first one: a peer whose lines are lost must not go on
	}
}

// NewLines prints to out.
func NewLines(out io.Writer) *Lines {
	l := &Lines{}
	l.mu.out = out
	return l
}

// FirstPoll says that Kafka is about to be asked for records. Only the first call prints.
func (l *Lines) FirstPoll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.polled {
		return
	}
	l.mu.polled = true
	l.printLocked(struct {
		Event      string `json:"event"`
		TimeUnixNs int64  `json:"time_unix_ns"`
	}{"first_poll", time.Now().UnixNano()})
}

// Read says how many more events were read.
func (l *Lines) Read(events int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.read += events
}

// Committed says, after a commit in MySQL, how many events of the topic are in all that is committed. It prints at once
// where that is all that was read, otherwise only every now and then.
func (l *Lines) Committed(events int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if events < l.mu.read && now.Sub(l.mu.committed) < committedEvery {
		return l.mu.err
	}
	l.mu.committed = now
	l.printLocked(struct {
		Event      string `json:"event"`
		Events     int64  `json:"events"`
		TimeUnixNs int64  `json:"time_unix_ns"`
	}{"committed", events, now.UnixNano()})
	return l.mu.err
}

// State is the last line: the bytes that the peer keeps to know who likes what, and how many pairs that are.
func (l *Lines) State(bytes, pairs int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.printLocked(struct {
		Event string `json:"event"`
		Bytes int64  `json:"bytes"`
		Pairs int64  `json:"pairs"`
	}{"state", bytes, pairs})
	return l.mu.err
}

func (l *Lines) printLocked(line any) {
	if l.mu.err != nil {
		return
	}
	text, err := json.Marshal(line)
	if err == nil {
		_, err = l.mu.out.Write(append(text, '\n'))
	}
	if err != nil {
		l.mu.err = fmt.Errorf("print a line: %w", err)
	}
}
