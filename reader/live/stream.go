package live

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"
)

// Why a stream ends, other than because its client closes it.
var (
	errShutdown   = errors.New("the reader shuts down")
	errAnew       = errors.New("the log was made anew or went back; come again")
	errNotCovered = errors.New("this reader does not come to the position that the client has; come again")
	errSlow       = errors.New("the client did not take what was written, or did not answer, in time")
	errGone       = errors.New("the client is gone")
)

// resumeWait bounds how long a stream waits for the position that its client has. A reader is behind another one for
// less; a position beyond the end of the log (after an unclean election, or made up by a client) never comes. The
// stream is closed then: the client comes again, maybe to a reader that is further.
const resumeWait = 30 * time.Second

// conn is how messages get to a client.
type conn interface {
	// send writes all of news, if there are any, and returns how many. An error ends the stream.
	send(news iter.Seq2[[]byte, *message]) (sent int, err error)
	// heartbeat writes a sign of life; ctx ends with the stream.
	heartbeat(ctx context.Context) error
	// close ends the connection, within a bound.
	close(cause error)
}

// stream is one client's open stream. Only its handler's goroutine uses it, but for wake and end.
type stream struct {
	ctx  context.Context
	end  context.CancelCauseFunc
	wake chan struct{} // has one element while there may be news: a stream that is awake will see them

	epoch  string
	groups []*group // in order of partition
	id     []byte   // the event id, built anew for each message
}

// reading reads the current values of subjects from the copy: the position that they are as of, and the value of each,
// nil if it has none. Below atLeast only the position.
type reading func(atLeast int64) (asOf int64, values []value, err error)

// group are the subjects of a stream that are in one partition.
type group struct {
	partition int32
	subjects  []*subject
	read      reading
	check     func() error // that what was read is of the stream's epoch
	leave     func()

	covered int64      // the position that the client has, in its event id; -1: none
	want    int64      // nothing from before it is shown
	behind  bool       // the copy has not come to want yet
	first   []*message // the values read, until they are sent
	shown   []int64    // of each subject the position of the newest value sent or in first
}

func newStream(parent context.Context) *stream {
	s := &stream{wake: make(chan struct{}, 1)}
	s.ctx, s.end = context.WithCancelCause(parent)
	return s
}

// leave takes the stream out of all its subjects.
func (s *stream) leave() {
	for _, g := range s.groups {
		g.leave()
	}
}

// run sends what there is and what comes, and returns why it ended.
func (s *stream) run(c conn, o Options, sent func(messages int)) error {
	heartbeat := time.NewTicker(o.Heartbeat)
	defer heartbeat.Stop()
	resumeBy := time.Now().Add(resumeWait)
	var again <-chan time.Time // while a group is behind
	if slices.ContainsFunc(s.groups, func(g *group) bool { return g.behind }) {
		again = time.After(o.Interval)
	}
	for {
		n, err := c.send(s.news)
		sent(n)
		if err != nil {
			return err
		}
		select {
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-s.wake:
		case <-heartbeat.C:
			if err := c.heartbeat(s.ctx); err != nil {
				return err
			}
		case <-again:
			again = nil
			behind, err := s.catchUp()
			switch {
			case err != nil:
				return err
			case behind && time.Now().After(resumeBy):
				return errNotCovered
			case behind:
				again = time.After(o.Interval)
			}
		}
	}
}

// catchUp looks whether the copy has come to where the groups behind want it.
func (s *stream) catchUp() (behind bool, err error) {
	for _, g := range s.groups {
		if !g.behind {
			continue
		}
		// Not ready is as good as behind here; anything else is not to be waited out.
		if err := g.load(); err != nil && !notReady(err) {
			return false, err
		}
		behind = behind || g.behind
	}
	return behind, nil
}

// load reads the current values, if the copy has come to the position wanted.
func (g *group) load() error {
	asOf, values, err := g.read(g.want)
	if err != nil {
		return err
	}
	if err := g.check(); err != nil {
		return err
	}
	if g.behind = asOf < g.want; g.behind {
		return nil
	}
	g.first = make([]*message, len(g.subjects))
	for i, v := range values {
		if v == nil {
			g.shown[i] = -1
			continue
		}
		if g.first[i], err = v(); err != nil {
			return err
		}
		g.shown[i] = asOf
	}
	return nil
}

// news yields what the client has not seen, and of each subject only the newest, with the event id that covers it. The
// id is valid until the next one. What was yielded counts as sent.
func (s *stream) news(yield func(id []byte, m *message) bool) {
	for _, g := range s.groups {
		if g.behind {
			continue
		}
		first := g.first
		g.first = nil
		for i, sub := range g.subjects {
			var m *message
			if first != nil {
				m = first[i]
			}
			// What was published before the reading may be older than what it brought.
			if newer := sub.current.Load(); newer != nil && newer.offset > g.shown[i] {
				m, g.shown[i] = newer, newer.offset
			}
			if m == nil {
				continue
			}
			g.covered = max(g.covered, m.offset)
			s.id = appendEventID(s.id[:0], s.epoch, s.groups)
			if !yield(s.id, m) {
				return
			}
		}
	}
}
