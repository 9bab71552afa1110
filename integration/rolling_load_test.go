package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"kudos/integration/oracle"
	"kudos/schema"
)

// span is a period in which a client waited.
type span struct{ from, to time.Time }

// stillness measures how long parts that should advance did not.
type stillness struct {
	mu struct {
		sync.Mutex
		at    map[int32]int64         // progress of a part
		since map[int32]time.Time     // when it was last seen to advance
		worst map[int32]time.Duration // of the periods that ended since the last take
	}
}

func newStillness() *stillness {
	s := &stillness{}
	s.mu.at, s.mu.since, s.mu.worst = map[int32]int64{}, map[int32]time.Time{}, map[int32]time.Duration{}
	return s
}

// saw reports the progress of a part. Reports may come concurrently and out of order.
func (s *stillness) saw(part int32, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	since, known := s.mu.since[part]
	if known && at <= s.mu.at[part] {
		return
	}
	if known {
		s.mu.worst[part] = max(s.mu.worst[part], now.Sub(since))
	}
	s.mu.at[part], s.mu.since[part] = at, now
}

// take returns the longest time in milliseconds that a part did not advance, since the last take.
func (s *stillness) take() (ms int64) {
	for _, worst := range s.takeEach() {
		ms = max(ms, worst.Milliseconds())
	}
	return ms
}

func (s *stillness) takeEach() map[int32]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	worst := s.mu.worst
	s.mu.worst = map[int32]time.Duration{}
	return worst
}

// movedSince reports whether that many parts have all advanced since then.
func (s *stillness) movedSince(then time.Time, parts int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	moved := 0
	for _, since := range s.mu.since {
		if since.After(then) {
			moved++
		}
	}
	return moved == parts
}

// opinions returns a seeded sequence of events in which few users change their reactions to few posts. All times are
// distinct, so that the last event of a user and post wins in any order of arrival.
func opinions(seed uint64, start time.Time) (next func() schema.Event) {
	r := rand.New(rand.NewPCG(seed, 7))
	posts, timeMs := rand.NewZipf(r, 1.1, 2, 499), start.UnixMilli()
	return func() schema.Event {
		timeMs++
		e := toggle(r, 1+posts.Uint64(), 500, timeMs)
		e.Region = []schema.Region{{'U', 'S'}, {'B', 'R'}, {'I', 'N'}, {'D', 'E'}}[r.IntN(4)]
		return e
	}
}

const (
	likersInFlight = 256                   // maximum number of requests in flight
	likerPatience  = time.Minute           // how long a like is retried
	likerPause     = 10 * time.Millisecond // after all producers have failed
)

var errRefused = errors.New("refused") // a response that must not be retried

// likers are the clients of some producers. Likes go to the producers round robin; if one does not respond, or with 503
// or 429, the like goes to the next one at once, and after a pause once all have failed.
type likers struct {
	producers []string // http://host:port
	client    *http.Client
	turn      atomic.Uint64
	accepted  *stillness

	mu struct {
		sync.Mutex
		acks    []oracle.Ack
		taken   int           // accepted likes
		slowest time.Duration // longest time from when a like was due, since the last take
		retries int           // attempts after the first one
		nowhere []round       // in which no producer accepted a like
	}
}

func newLikers(producers []string) *likers {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = likersInFlight
	return &likers{producers: producers, client: &http.Client{Transport: transport, Timeout: 15 * time.Second},
		accepted: newStillness()}
}

// run sends events at a rate until ctx ends, and then waits until all of them are accepted. It returns what it sent.
func (l *likers) run(ctx context.Context, next func() schema.Event, rate int) (sent []schema.Event, err error) {
	defer l.client.CloseIdleConnections()
	senders, sending := errgroup.WithContext(context.WithoutCancel(ctx))
	senders.SetLimit(likersInFlight)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for due := time.Now(); ctx.Err() == nil && sending.Err() == nil; {
		select {
		case <-tick.C:
		case <-ctx.Done():
		case <-sending.Done():
		}
		for now := time.Now(); ctx.Err() == nil && !due.After(now); due = due.Add(time.Second / time.Duration(rate)) {
			e, wanted := next(), due
			sent = append(sent, e)
			senders.Go(func() error { return l.send(sending, e, wanted) })
		}
	}
	return sent, senders.Wait()
}

// refusal is a failed attempt; round is one attempt at each producer, one after another.
type (
	refusal struct {
		span
		producer string
		err      error
	}
	round []refusal
)

// excused reports whether every producer was restarting when it was tried. They need not have been down at the same
// time: between two attempts the first may have returned, and the second stopped.
func (r round) excused(away map[string]span) bool {
	return !slices.ContainsFunc(r, func(one refusal) bool {
		gone, ok := away[one.producer]
		return !ok || one.to.Before(gone.from) || one.from.After(gone.to)
	})
}

// send sends a like until any producer accepts it. The like has an explicit time, so that duplicates change nothing.
func (l *likers) send(ctx context.Context, e schema.Event, due time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, likerPatience)
	defer cancel()
	turn := l.turn.Add(1)
	var tried round
	for try := uint64(0); ; try++ {
		producer, began := l.producers[(turn+try)%uint64(len(l.producers))], time.Now()
		at, err := l.try(ctx, producer, e)
		if err == nil {
			l.note(e, due, at, int(try))
			return nil
		}
		if ctx.Err() != nil || errors.Is(err, errRefused) {
			return fmt.Errorf("%+v was not accepted: %w", e, err)
		}
		tried = append(tried, refusal{span{began, time.Now()}, producer, err})
		if (try+1)%uint64(len(l.producers)) != 0 {
			continue
		}
		l.mu.Lock()
		l.mu.nowhere, tried = append(l.mu.nowhere, tried), nil
		l.mu.Unlock()
		select {
		case <-time.After(likerPause):
		case <-ctx.Done():
		}
	}
}

func (l *likers) try(ctx context.Context, producer string, e schema.Event) (at place, err error) {
	method, kind := http.MethodPut, "likes"
	switch e.Action {
	case schema.Dislike:
		kind = "dislikes"
	case schema.Unlike:
		method = http.MethodDelete
	}
	url := fmt.Sprintf("%s/v1/posts/%d/%s/%d?time_ms=%d&region=%s", producer, e.PostID, kind, e.UserID, e.TimeMs,
		e.Region)
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return at, err
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return at, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return at, err
	}
	switch resp.StatusCode {
	case http.StatusAccepted:
		return at, json.Unmarshal(text, &at)
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return at, fmt.Errorf("%s: %s", resp.Status, text)
	}
	return at, fmt.Errorf("%w: %s: %s", errRefused, resp.Status, text)
}

func (l *likers) note(e schema.Event, due time.Time, at place, retries int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.Offset >= 0 { // otherwise Kafka has it, at an unknown offset
		rec := record(e)
		l.mu.acks = append(l.mu.acks, oracle.Ack{Partition: at.Partition, Offset: at.Offset,
			Digest: oracle.DigestOf(rec.Key, rec.Value)})
	}
	l.mu.retries += retries
	l.mu.slowest = max(l.mu.slowest, time.Since(due))
	l.mu.taken++
	l.accepted.saw(0, int64(l.mu.taken))
}

// take returns the longest time in milliseconds that a like took, since the last take.
func (l *likers) take() (ms int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ms, l.mu.slowest = l.mu.slowest.Milliseconds(), 0
	return ms
}
