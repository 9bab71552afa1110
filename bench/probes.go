package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// lookForProbes is how often a watcher asks.
	lookForProbes = 2 * time.Millisecond
	// askedProbes is how many it asks for at a time: the oldest ones.
	askedProbes = 100
	// askTimeout bounds one question. One without an answer is asked again: how long the answer took is what is
	// measured.
	askTimeout = 30 * time.Second
)

// probe is a post that gets one like, and when that was to be sent.
type probe struct {
	post uint64
	sent time.Time
}

// ask returns which of the posts have their like.
type ask func(ctx context.Context, posts []uint64) (seen map[uint64]bool, err error)

// watcher looks for probes in one place until it has seen all of them.
type watcher struct {
	name string
	ask  ask

	took []time.Duration // to be read after watch

	mu struct {
		sync.Mutex
		waiting []probe
		ended   bool // no more will come
	}
}

func newWatcher(name string, ask ask) *watcher { return &watcher{name: name, ask: ask} }

// begin starts over; for each level.
func (w *watcher) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took, w.mu.waiting, w.mu.ended = nil, nil, false
}

// expect adds a probe.
func (w *watcher) expect(p probe) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.waiting = append(w.mu.waiting, p)
}

// end tells that no more will be added.
func (w *watcher) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.ended = true
}

// oldest are the probes to ask for, and whether there may be more later.
func (w *watcher) oldest() (posts []uint64, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.mu.waiting[:min(len(w.mu.waiting), askedProbes)] {
		posts = append(posts, p.post)
	}
	return posts, !w.mu.ended
}

// saw takes away the probes that were seen.
func (w *watcher) saw(seen map[uint64]bool, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := w.mu.waiting[:0]
	for _, p := range w.mu.waiting {
		if seen[p.post] {
			w.took = append(w.took, at.Sub(p.sent))
		} else {
			rest = append(rest, p)
		}
	}
	w.mu.waiting = rest
}

// watch asks until all probes were seen.
func (w *watcher) watch(ctx context.Context) error {
	tick := time.NewTicker(lookForProbes)
	defer tick.Stop()
	for {
		posts, more := w.oldest()
		if len(posts) == 0 && !more {
			return nil
		}
		if len(posts) > 0 {
			asking, cancel := context.WithTimeout(ctx, askTimeout)
			seen, err := w.ask(asking, posts)
			cancel()
			if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("looking for probes in %s: %w", w.name, err)
			}
			w.saw(seen, time.Now())
			if len(seen) == len(posts) {
				continue // there may be more than were asked for
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("looking for probes in %s, %d of them not seen yet: %w", w.name, len(posts), context.Cause(ctx))
		}
	}
}

// askMySQL asks by primary key.
func askMySQL(db *sql.DB) ask {
	return func(ctx context.Context, posts []uint64) (map[uint64]bool, error) {
		rows, err := db.QueryContext(ctx, "SELECT post_id FROM like_count WHERE `count` = 1 AND post_id IN ("+joined(posts)+")")
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		seen := map[uint64]bool{}
		for rows.Next() {
			var post uint64
			if err := rows.Scan(&post); err != nil {
				return nil, err
			}
			seen[post] = true
		}
		return seen, rows.Err()
	}
}

// joined are numbers with commas between.
func joined(posts []uint64) string {
	text := make([]string, len(posts))
	for i, p := range posts {
		text[i] = strconv.FormatUint(p, 10)
	}
	return strings.Join(text, ",")
}
