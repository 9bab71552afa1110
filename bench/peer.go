package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Peer is a contender that is not kudos: a program that tells in lines of JSON what it does (see peers/README.md).
type Peer struct {
	Title, Text string
	Redis       bool
	Program     Command // without the flags that every peer takes
}

func (p *Peer) Name() string     { return p.Title }
func (p *Peer) About() string    { return p.Text }
func (p *Peer) NeedsRedis() bool { return p.Redis }

func (p *Peer) Prepare(ctx context.Context, s *Servers, partitions int32) error {
	return s.makeLikes(ctx, partitions)
}

func (p *Peer) Start(s *Servers, dir string) (Running, error) {
	c := p.Program
	c.Args = append(slices.Clone(c.Args), "--brokers", strings.Join(s.Kafka.Brokers, ","), "--mysql-dsn", s.DSN, "--state-dir", filepath.Join(dir, "state"))
	if p.Redis {
		c.Args = append(c.Args, "--redis", s.Redis)
	}
	r := &peerProcess{}
	r.init(p.Title, dir)
	return r, r.process.start(c, false, r.line)
}

// peerProcess is what the lines of a peer's stdout have told.
type peerProcess struct {
	news
	firstPoll time.Time
	committed peerLine
	state     *State
	bad       error // the first line that was none of the contract
}

// peerLine is any of the lines.
type peerLine struct {
	Event      string `json:"event"`
	TimeUnixNs int64  `json:"time_unix_ns"`
	Events     int64  `json:"events"`
	State
}

func (r *peerProcess) line(text []byte) {
	var l peerLine
	err := json.Unmarshal(text, &l)
	r.tell(func() {
		switch {
		case err != nil:
		case l.Event == "first_poll":
			r.firstPoll = time.Unix(0, l.TimeUnixNs)
		case l.Event == "committed" && l.Events >= r.committed.Events:
			if l.Events > r.committed.Events {
				r.committed = l // the first time that says so is when it was
			}
		case l.Event == "state":
			r.state = &l.State
		default:
			err = fmt.Errorf("it is not one of the contract, or counts backwards")
		}
		if err != nil && r.bad == nil {
			r.bad = fmt.Errorf("%s printed the line %q: %w", r.process.name, text, err)
		}
	})
}

// told waits for something that a line tells, or for a bad line.
func (r *peerProcess) told(ctx context.Context, what string, known func() bool) error {
	if err := r.wait(ctx, what, func() bool { return r.bad != nil || known() }); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bad
}

func (r *peerProcess) FirstPoll(ctx context.Context) (time.Time, error) {
	var at time.Time
	err := r.told(ctx, "the first poll", func() bool { at = r.firstPoll; return !at.IsZero() })
	return at, err
}

func (r *peerProcess) Counted(ctx context.Context, events int64) (time.Time, error) {
	var last peerLine
	err := r.told(ctx, fmt.Sprintf("%d events to be committed", events), func() bool { last = r.committed; return last.Events >= events })
	if err == nil && last.Events > events {
		err = fmt.Errorf("%s says that %d events are in its counts, but there are %d", r.process.name, last.Events, events)
	}
	return time.Unix(0, last.TimeUnixNs), err
}

func (r *peerProcess) Stop() (State, error) {
	if err := r.process.stop(); err != nil {
		return State{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.bad != nil:
		return State{}, r.bad
	case r.state == nil:
		return State{}, fmt.Errorf("%s ended without a line about its state\n%s", r.process.name, r.process.tail())
	}
	return *r.state, nil
}
