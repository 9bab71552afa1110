package live

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"kudos/reader/view"
	"kudos/reader/wire"
	"kudos/schema"
)

// Why a stream ends, unless its client closes it.
var (
	errShutdown   = errors.New("the reader is shutting down")
	errRecreated  = errors.New("the log was recreated or rewound; reconnect")
	errNotCovered = errors.New("this reader has not reached the position that the client has; reconnect")
	errSlow       = errors.New("the client did not read or answer in time")
	errGone       = errors.New("the client disconnected")
)

// resumeWait bounds how long a stream waits for the position that its client has. One reader is behind another for less
// than that. A position beyond the end of the log (after an unclean election, or made up by a client) never comes. The
// stream is then closed, and the client reconnects, maybe to a reader that is further ahead.
const resumeWait = 30 * time.Second

type conn interface {
	// send writes all of news, if there is any, and returns the number of messages. An error ends the stream.
	send(news iter.Seq2[[]byte, *message]) (sent int, err error)
	// heartbeat writes a heartbeat; ctx ends with the stream.
	heartbeat(ctx context.Context) error
	// close closes the connection, in bounded time.
	close(cause error)
}

// stream is one client's open stream. Only its handler's goroutine uses it, except for wake and end.
type stream struct {
	ctx  context.Context
	end  context.CancelCauseFunc
	wake chan struct{} // holds one element while there may be news, which the next turn sends

	epoch  string
	groups []*group // ordered by partition
	id     []byte   // the event id, rebuilt for each message
	viewer *viewer  // nil: none
}

// reading reads the current values of subjects from the view: the position they are as of, and the value of each, nil
// if it has none. If the view is before atLeast, it returns only the position.
type reading func(atLeast int64) (asOf int64, values []value, err error)

// group is the subjects of a stream that are in one partition.
type group struct {
	partition int32
	subjects  []*subject
	read      reading
	check     func() error // returns an error unless what was read is of the stream's epoch
	leave     func()

	covered int64      // position that the client has, by its event id; -1: none
	want    int64      // nothing older is sent
	behind  bool       // the view has not reached want
	first   []*message // the values read, until they are sent
	shown   []int64    // by subject: position of the newest value sent or in first
}

func newStream(parent context.Context) *stream {
	s := &stream{wake: make(chan struct{}, 1)}
	s.ctx, s.end = context.WithCancelCause(parent)
	return s
}

func (s *stream) leave() {
	for _, g := range s.groups {
		g.leave()
	}
}

// errEpochs means that likes was recreated, and that not all partitions of the view follow the new topic yet.
var errEpochs = errors.New("partitions are of different logs: likes is being recreated")

// notReady reports whether err passes once a view has caught up.
func notReady(err error) bool { return errors.As(err, new(*view.NotReadyError)) }

// subscribe builds the groups of a stream, registers them and reads the current values.
func (h *Hub) subscribe(s *stream, q *wanted) (err error) {
	if q.ranking != nil {
		err = h.addRanking(s, *q.ranking)
	} else {
		err = h.addPosts(s, q.posts)
	}
	if err != nil {
		return err
	}
	for _, g := range s.groups {
		if q.seen != nil && q.seen.epoch == s.epoch {
			if offset, ok := q.seen.offsets[g.partition]; ok {
				g.covered, g.want = offset, offset
			}
		}
		if err := g.load(); err != nil {
			return err
		}
	}
	return nil
}

func (h *Hub) addPosts(s *stream, posts []uint64) error {
	byPartition := map[int32][]uint64{}
	for _, post := range posts {
		owners, err := h.likes.PartitionsOf(post)
		if err != nil {
			return err
		}
		for _, partition := range owners {
			byPartition[partition] = append(byPartition[partition], post)
		}
	}
	for _, partition := range slices.Sorted(maps.Keys(byPartition)) {
		epoch, err := h.likes.Epoch(partition)
		if err != nil {
			return err
		}
		if s.epoch != "" && s.epoch != epoch {
			return errEpochs
		}
		s.epoch = epoch
		posts := byPartition[partition]
		addGroup(s, h.posts, partition, posts, func(atLeast int64) (int64, []value, error) {
			return h.readPosts(partition, posts, atLeast)
		})
	}
	return nil
}

func (h *Hub) readPosts(partition int32, posts []uint64, atLeast int64) (int64, []value, error) {
	if atLeast > 0 {
		if asOf, err := h.likes.AsOf(partition); err != nil || asOf.Offset < atLeast {
			return asOf.Offset, nil, err
		}
	}
	all, positions, err := h.likes.Counts(posts)
	if err != nil {
		return 0, nil, err
	}
	at := slices.IndexFunc(positions, func(p wire.Position) bool { return p.Partition == partition })
	if at < 0 { // the layout has just changed
		return 0, nil, &view.NotReadyError{Topic: schema.TopicState, Partition: partition, Behind: -1}
	}
	values := make([]value, len(posts))
	for i, post := range posts {
		values[i] = counts(wire.PostLikes{PostID: post, Counts: all[i], AsOf: positions[at]})
	}
	return positions[at].Offset, values, nil
}

func (h *Hub) addRanking(s *stream, key rankingKey) error {
	partition, err := h.rankings.Partition(key.region, key.window)
	if err != nil {
		return err
	}
	if s.epoch, err = h.rankings.Epoch(partition); err != nil {
		return err
	}
	addGroup(s, h.ranked, partition, []rankingKey{key}, func(int64) (int64, []value, error) {
		r, err := h.rankings.Get(key.region, key.window)
		if err != nil {
			return 0, nil, fmt.Errorf("reading ranking %s/%s: %w", key.region, key.window, err)
		}
		if r == nil {
			return 0, []value{nil}, nil
		}
		return r.AsOf.Offset, []value{ranking(r)}, nil
	})
	return nil
}

// addGroup registers a stream with subjects of one partition; read reads their values.
func addGroup[K comparable](s *stream, r *registry[K], partition int32, keys []K, read reading) {
	w, epoch := r.of(partition), s.epoch
	subjects := w.join(epoch, keys, s)
	s.groups = append(s.groups, &group{
		partition: partition, subjects: subjects, read: read, covered: -1, shown: make([]int64, len(subjects)),
		leave: func() { w.leave(keys, subjects, s) },
		check: func() error {
			now, err := r.epoch(partition)
			if err == nil && now != epoch {
				err = errRecreated
			}
			return err
		},
	})
}

// run sends the current values and newer ones, and returns why it ended.
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
		if n > 0 && s.viewer != nil {
			s.viewer.counted(s.groups)
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

// catchUp checks whether the view has reached what the groups that are behind want.
func (s *stream) catchUp() (behind bool, err error) {
	for _, g := range s.groups {
		if !g.behind {
			continue
		}
		// A view that is not ready counts as behind. Waiting does not help against any other error.
		if err := g.load(); err != nil && !notReady(err) {
			return false, err
		}
		behind = behind || g.behind
	}
	return behind, nil
}

// load reads the current values, if the view has reached want.
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

// news yields the newest value of each subject, if the client has not seen it, with the event id that covers it. The id
// is valid until the next one. What was yielded counts as sent.
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
			// A value that was published before the read may be older than the one read.
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
	if s.viewer != nil && len(s.id) > 0 {
		for _, m := range s.viewer.take() {
			if !yield(s.id, m) {
				return
			}
		}
	}
}
