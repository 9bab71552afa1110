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

// span is a stretch of time in which somebody waited.
type span struct{ from, to time.Time }

// stillness is how long something, which has parts that move forward, stood still.
type stillness struct {
	mu struct {
		sync.Mutex
		at    map[int32]int64     // how far a part is
		since map[int32]time.Time // when it was seen to move last
		worst time.Duration       // of what has ended since take was called last
	}
}

func newStillness() *stillness {
	s := &stillness{}
	s.mu.at, s.mu.since = map[int32]int64{}, map[int32]time.Time{}
	return s
}

// saw tells how far a part is. Several may tell of the same one, and not in order.
func (s *stillness) saw(part int32, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	since, known := s.mu.since[part]
	if known && at <= s.mu.at[part] {
		return
	}
	if known {
		s.mu.worst = max(s.mu.worst, now.Sub(since))
	}
	s.mu.at[part], s.mu.since[part] = at, now
}

// take is the longest time in milliseconds for which a part stood still, since take was called last.
func (s *stillness) take() (ms int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ms, s.mu.worst = s.mu.worst.Milliseconds(), 0
	return ms
}

// movedSince tells whether so many parts have all moved since then.
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

// opinions returns a seeded run of events in which few users change their minds about few posts. Each has a time of its
// own, so that the last one of a user and post is the one that holds, however they arrive.
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
	likersAtATime = 256                   // requests in hand at most
	likerPatience = time.Minute           // for which a like is tried again
	likerPause    = 10 * time.Millisecond // after all producers were tried in vain
)

// errRefused is an answer after which trying again is in vain.
var errRefused = errors.New("refused")

// likers are the clients of some producers. Each like goes to the next one in turn; if that does not answer, or answers
// 503 or 429, at once to the one after it, and after a pause when none took it.
type likers struct {
	producers []string // http://host:port
	client    *http.Client
	turn      atomic.Uint64
	accepted  *stillness

	mu struct {
		sync.Mutex
		acks    []oracle.Ack
		taken   int           // likes that were accepted
		slowest time.Duration // from when one of them was due, since take was called last
		retries int           // tries after the first one
		nowhere []round       // in which no producer took a like
	}
}

func newLikers(producers []string) *likers {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = likersAtATime
	return &likers{producers: producers, client: &http.Client{Transport: transport, Timeout: 15 * time.Second},
		accepted: newStillness()}
}

// run sends so many events a second until ctx ends, and then continues until all that was begun is accepted. It returns
// what it sent.
func (l *likers) run(ctx context.Context, next func() schema.Event, rate int) (sent []schema.Event, err error) {
	defer l.client.CloseIdleConnections()
	senders, sending := errgroup.WithContext(context.WithoutCancel(ctx))
	senders.SetLimit(likersAtATime)
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

// refusal is a try that came to nothing, and round one of each producer, one after the other.
type (
	refusal struct {
		span
		producer string
		err      error
	}
	round []refusal
)

// excused tells whether every producer was away when it was asked. That need not have been at one time: between two
// tries the first one may have come back, and the second one gone.
func (r round) excused(away map[string]span) bool {
	return !slices.ContainsFunc(r, func(one refusal) bool {
		gone, ok := away[one.producer]
		return !ok || one.to.Before(gone.from) || one.from.After(gone.to)
	})
}

// send has a like accepted, by whichever producer. It names its time, so that sending it again changes nothing.
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
	if at.Offset >= 0 { // otherwise Kafka has it, and did not say where
		rec := record(e)
		l.mu.acks = append(l.mu.acks, oracle.Ack{Partition: at.Partition, Offset: at.Offset,
			Digest: oracle.DigestOf(rec.Key, rec.Value)})
	}
	l.mu.retries += retries
	l.mu.slowest = max(l.mu.slowest, time.Since(due))
	l.mu.taken++
	l.accepted.saw(0, int64(l.mu.taken))
}

// take is the longest that a like took in milliseconds, since take was called last.
func (l *likers) take() (ms int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ms, l.mu.slowest = l.mu.slowest.Milliseconds(), 0
	return ms
}
