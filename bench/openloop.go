package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kudos/schema"
)

const (
	// firstProbe is the post of the first probe: above all posts of shapes.
	firstProbe = 1 << 50
	// sendEvery is how often the events that are due are sent.
	sendEvery = time.Millisecond
	// sendLinger is how long an event waits for others of its batch, as in the producer role.
	sendLinger = 2 * time.Millisecond
	// sendBuffer is how many events may wait for Kafka before sending waits, too. (Its time counts, then.)
	sendBuffer = 1 << 21
	// seenTimeout is how long the last probes may take.
	seenTimeout = 2 * time.Minute
	// leastEventsAProbe: of so many events one is a probe at most.
	leastEventsAProbe = 10
)

// openLoop sends events at a rate, whatever becomes of them: a sender that waited for answers would send less while the
// system is slow. An event's latency begins when it was to be sent, so a stall of the sender itself is in it.
type openLoop struct {
	*latencyRun
	rate         float64 // events a second
	events       int     // to send
	eventsAProbe int
	client       *kgo.Client
	records      records
	sent         chan probe // those that are measured; closed after the last

	mu    sync.Mutex
	acked []time.Duration // how long probes took until Kafka had them
}

// hold sends events at a rate for as long as planned, and asks for the probes until it has seen them.
func (m *latencyRun) hold(ctx context.Context, rate float64, where string, ask ask) (level LatencyLevel, err error) {
	plan := m.plan.Latency
	l := &openLoop{latencyRun: m, rate: rate, records: records{partitions: m.load.Shape.Partitions}}
	l.events = int(rate * (plan.Warmup + plan.Measure).Seconds())
	l.eventsAProbe = max(leastEventsAProbe, int(rate)/plan.Probes)
	l.sent = make(chan probe, l.events/l.eventsAProbe+1) // has a slot for each: sending waits for nobody
	if l.client, err = m.servers.writer(sendLinger, sendBuffer); err != nil {
		return level, err
	}
	defer l.client.Close()
	limit := plan.Warmup + plan.Measure + seenTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("the last probes were not seen in time"))
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		took, err := watch(ctx, where, ask, l.sent)
		level.seen = quantiles(took)
		return err
	})
	g.Go(func() (err error) {
		defer close(l.sent)
		level.EventsPerSecond, err = l.send(ctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return level, err
	}
	level.Events, level.Kafka = l.events, quantiles(l.acked)
	return level, nil
}

// send sends what is due, again and again, and returns the rate that it reached.
func (l *openLoop) send(ctx context.Context) (rate float64, err error) {
	ctx, fail := context.WithCancelCause(ctx) // by the first failure
	defer fail(nil)
	tick := time.NewTicker(sendEvery)
	defer tick.Stop()
	begin := time.Now()
	for sent := 0; ; {
		due := min(l.events, int(time.Since(begin).Seconds()*l.rate)+1)
		for ; sent < due; sent++ {
			planned := time.Duration(float64(sent) / l.rate * float64(time.Second))
			if err := l.sendOne(ctx, sent, begin.Add(planned), planned >= l.plan.Latency.Warmup, fail); err != nil {
				return 0, err
			}
		}
		if sent == l.events {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	rate = float64(l.events) / time.Since(begin).Seconds()
	_ = l.client.Flush(ctx) // fails if ctx ends
	return rate, context.Cause(ctx)
}

// sendOne sends the nth event: the next of the stream, or a probe.
func (l *openLoop) sendOne(ctx context.Context, n int, at time.Time, warm bool, fail func(error)) (err error) {
	var e schema.Event
	measured := false
	if n%l.eventsAProbe == 0 {
		e = schema.Event{PostID: firstProbe + uint64(l.probes), UserID: 1, Action: schema.Like, Region: regions[0]}
		l.probes++
		if measured = warm; measured {
			l.sent <- probe{e.PostID, at}
		}
	} else if e, err = l.stream.Next(); err != nil {
		return err
	}
	e.TimeMs = at.UnixMilli()
	l.client.Produce(ctx, l.records.of(&e), func(_ *kgo.Record, err error) {
		if err != nil {
			fail(fmt.Errorf("sending to %s: %w", schema.TopicLikes, err))
		} else if measured {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.acked = append(l.acked, time.Since(at))
		}
	})
	return nil
}

const (
	// lookForProbes is how often a watcher asks.
	lookForProbes = 2 * time.Millisecond
	// askedProbes is how many it asks for at a time: the oldest ones.
	askedProbes = 100
	// askTimeout bounds one question. One without an answer is asked again: its time counts.
	askTimeout = 30 * time.Second
)

// probe is a post that gets one like, and when that was to be sent.
type probe struct {
	post uint64
	sent time.Time
}

// ask returns which of the posts have their like.
type ask func(ctx context.Context, posts []uint64) (seen map[uint64]bool, err error)

// watch asks until it has seen all probes that come, and returns how long each took.
func watch(ctx context.Context, where string, ask ask, probes <-chan probe) (took []time.Duration, err error) {
	tick := time.NewTicker(lookForProbes)
	defer tick.Stop()
	var waiting []probe
	for more := true; ; {
		waiting, more = receive(waiting, probes)
		if len(waiting) == 0 && !more {
			return took, nil
		}
		var posts []uint64
		for _, p := range waiting[:min(len(waiting), askedProbes)] {
			posts = append(posts, p.post)
		}
		if len(posts) > 0 {
			asking, cancel := context.WithTimeout(ctx, askTimeout)
			seen, err := ask(asking, posts)
			cancel()
			if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
				return nil, fmt.Errorf("looking for probes in %s: %w", where, err)
			}
			now := time.Now()
			waiting = slices.DeleteFunc(waiting, func(p probe) bool {
				if seen[p.post] {
					took = append(took, now.Sub(p.sent))
				}
				return seen[p.post]
			})
			if len(seen) == len(posts) {
				continue // there may be more than were asked for
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("looking for probes in %s, %d of them not seen yet: %w",
				where, len(posts), context.Cause(ctx))
		}
	}
}

// receive adds the probes that have come, without waiting for more. None come after the channel is closed.
func receive(waiting []probe, probes <-chan probe) (_ []probe, more bool) {
	for {
		select {
		case p, ok := <-probes:
			if !ok {
				return waiting, false
			}
			waiting = append(waiting, p)
		default:
			return waiting, true
		}
	}
}

func askMySQL(db *sqlx.DB) ask {
	return func(ctx context.Context, posts []uint64) (map[uint64]bool, error) {
		var liked []uint64
		query := "SELECT post_id FROM like_count WHERE `count` = 1 AND post_id IN (" + joined(posts) + ")"
		if err := db.SelectContext(ctx, &liked, query); err != nil {
			return nil, err
		}
		seen := map[uint64]bool{}
		for _, post := range liked {
			seen[post] = true
		}
		return seen, nil
	}
}

func joined(posts []uint64) string {
	text := make([]string, len(posts))
	for i, p := range posts {
		text[i] = strconv.FormatUint(p, 10)
	}
	return strings.Join(text, ",")
}
