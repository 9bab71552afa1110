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
	"kudos/schema/kudosv1"
)

// span is a stretch of time in which somebody waited.
type span struct{ from, to time.Time }

// shortestSpan is what is not worth remembering.
const shortestSpan = 20 * time.Millisecond

// longest is the length of the longest span that had begun before to, and was not over before from.
func longest(spans []span, from, to time.Time) time.Duration {
	length := time.Duration(0)
	for _, one := range spans {
		if one.from.Before(to) && one.to.After(from) {
			length = max(length, one.to.Sub(one.from))
		}
	}
	return length
}

// stillness is when something, which has parts that move forward, stood still.
type stillness struct {
	mu struct {
		sync.Mutex
		at    map[int32]int64     // how far a part is
		since map[int32]time.Time // when it was seen to move last
		spans []span              // in which a part did not
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
	if known && now.Sub(since) >= shortestSpan {
		s.mu.spans = append(s.mu.spans, span{since, now})
	}
	s.mu.at[part], s.mu.since[part] = at, now
}

// longest is the longest time for which a part stood still, of what overlaps from and to.
func (s *stillness) longest(from, to time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.mu.spans)
	for _, since := range s.mu.since {
		all = append(all, span{since, to})
	}
	return longest(all, from, to)
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

// opinions makes a seeded run of events in which few users change their minds about few posts. Each has a time of its own,
// so that the last one of a user and post is the one that holds, however they arrive.
type opinions struct {
	random *rand.Rand
	posts  *rand.Zipf
	timeMs int64
}

func newOpinions(seed uint64, start time.Time) *opinions {
	r := rand.New(rand.NewPCG(seed, 7))
	return &opinions{random: r, posts: rand.NewZipf(r, 1.1, 2, 499), timeMs: start.UnixMilli()}
}

func (o *opinions) next() oracle.Event {
	o.timeMs++
	return oracle.Event{
		Post: 1 + o.posts.Uint64(), User: 1 + o.random.Uint64N(500), TimeMs: o.timeMs,
		Action: []kudosv1.Action{kudosv1.Action_LIKE, kudosv1.Action_LIKE, kudosv1.Action_UNLIKE, kudosv1.Action_DISLIKE}[o.random.IntN(4)],
		Region: []string{"US", "BR", "IN", "DE"}[o.random.IntN(4)],
	}
}

// standingAfter are the counts of posts after all of the events, by no log and no other code than this.
func standingAfter(events []oracle.Event) map[uint64]count {
	type pair struct{ post, user uint64 }
	last := map[pair]kudosv1.Action{}
	for _, e := range events {
		last[pair{e.Post, e.User}] = e.Action
	}
	counts := map[uint64]count{}
	for p, action := range last {
		c := counts[p.post]
		switch action {
		case kudosv1.Action_LIKE:
			c.likes++
		case kudosv1.Action_DISLIKE:
			c.dislikes++
		}
		if c != (count{}) {
			counts[p.post] = c
		}
	}
	return counts
}

const (
	// likersAtATime is how many requests are in hand at most.
	likersAtATime = 256
	// likerPatience is for how long a like is tried again.
	likerPatience = time.Minute
	// likerPause comes after all producers were tried in vain.
	likerPause = 10 * time.Millisecond
)

// likers are the clients of some producers. Each like goes to the next one in turn; if that does not answer, or answers 503
// or 429, at once to the one after it, and after a pause when none took it.
type likers struct {
	producers []string // http://host:port
	client    *http.Client
	turn      atomic.Uint64
	accepted  *stillness

	mu struct {
		sync.Mutex
		acks    []oracle.Ack
		retries int     // tries after the first one
		nowhere []round // in which no producer took a like
		waits   []span  // from when a like was due until it was accepted
	}
}

func newLikers(producers []string) *likers {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = likersAtATime
	return &likers{producers: producers, client: &http.Client{Transport: transport, Timeout: 15 * time.Second}, accepted: newStillness()}
}

// dueLike is an event, and when it is to be sent.
type dueLike struct {
	oracle.Event
	due time.Time
}

// run sends so many events a second until ctx ends, and then goes on until all that was begun is accepted. It returns what
// it sent.
func (l *likers) run(ctx context.Context, from *opinions, rate int) ([]oracle.Event, error) {
	defer l.client.CloseIdleConnections()
	work := make(chan dueLike, 100*rate) // nobody is to wait who makes events
	senders, sending := errgroup.WithContext(context.WithoutCancel(ctx))
	for range likersAtATime {
		senders.Go(func() error {
			for like := range work {
				if err := l.send(sending, like); err != nil {
					return err
				}
			}
			return nil
		})
	}
	sent := l.feed(ctx, sending, from, rate, work)
	close(work)
	return sent, senders.Wait()
}

// feed makes the events as they become due, until ctx ends or a sender fails.
func (l *likers) feed(ctx, sending context.Context, from *opinions, rate int, work chan<- dueLike) (sent []oracle.Event) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	due, every := time.Now(), time.Second/time.Duration(rate)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return sent
		case <-sending.Done():
			return sent
		}
		for now := time.Now(); !due.After(now); due = due.Add(every) {
			e := from.next()
			select {
			case work <- dueLike{e, due}:
			case <-sending.Done():
				return sent
			}
			sent = append(sent, e)
		}
	}
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

// excused tells whether every producer was away when it was asked. That need not have been at one time: between two tries
// the first one may have come back, and the second one gone.
func (r round) excused(away map[string]span) bool {
	return !slices.ContainsFunc(r, func(one refusal) bool {
		gone, ok := away[one.producer]
		return !ok || one.to.Before(gone.from) || one.from.After(gone.to)
	})
}

// send has a like accepted, by whichever producer. It names its time, so that sending it again changes nothing.
func (l *likers) send(ctx context.Context, like dueLike) error {
	ctx, cancel := context.WithTimeout(ctx, likerPatience)
	defer cancel()
	turn := l.turn.Add(1)
	var tried round
	for try := uint64(0); ; try++ {
		producer, began := l.producers[(turn+try)%uint64(len(l.producers))], time.Now()
		at, err := l.try(ctx, producer, like.Event)
		if err == nil {
			l.note(like, at, int(try))
			return nil
		}
		if refused := (*refusedError)(nil); ctx.Err() != nil || errors.As(err, &refused) {
			return fmt.Errorf("%+v was not accepted: %w", like.Event, err)
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

// refusedError is an answer after which trying again is in vain.
type refusedError struct{ answer string }

func (e *refusedError) Error() string { return e.answer }

// try sends a like to a producer.
func (l *likers) try(ctx context.Context, producer string, e oracle.Event) (at place, err error) {
	method, kind := http.MethodPut, "likes"
	switch e.Action {
	case kudosv1.Action_DISLIKE:
		kind = "dislikes"
	case kudosv1.Action_UNLIKE:
		method = http.MethodDelete
	}
	url := fmt.Sprintf("%s/v1/posts/%d/%s/%d?time_ms=%d&region=%s", producer, e.Post, kind, e.User, e.TimeMs, e.Region)
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
	return at, &refusedError{fmt.Sprintf("%s: %s", resp.Status, text)}
}

func (l *likers) note(like dueLike, at place, retries int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.Offset >= 0 { // otherwise Kafka has it, and did not say where
		l.mu.acks = append(l.mu.acks, oracle.Ack{Partition: at.Partition, Offset: at.Offset, Digest: like.Digest()})
	}
	l.mu.retries += retries
	l.mu.waits = append(l.mu.waits, span{like.due, time.Now()})
	l.accepted.saw(0, int64(len(l.mu.waits)))
}

// taken is how many likes were accepted.
func (l *likers) taken() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.waits)
}

// slowest is the longest that a like took from when it was due until it was accepted, of what overlaps from and to.
func (l *likers) slowest(from, to time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return longest(l.mu.waits, from, to)
}
